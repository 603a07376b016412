#!/bin/sh
# The arguments are those of the command. Spark on Kubernetes passes the single argument `executor`.
[ "$1" = executor ] && exec /opt/streams-groups/image/executor.sh
exec streams-groups "$@"
