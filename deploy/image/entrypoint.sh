#!/bin/sh
# The image is the command; Spark on Kubernetes starts it with the one word `executor`.
[ "$1" = executor ] && exec /opt/streams-groups/image/executor.sh
exec streams-groups "$@"
