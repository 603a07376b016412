#!/bin/sh
# The arguments are those of `streams-groups`. Spark on Kubernetes passes the single argument `executor`.
[ "$1" = executor ] && exec /opt/streams-groups/image/executor.sh
# The log shows failed checks before the job starts. The job starts anyway, since it waits for brokers that are down.
# With options, `run` is not checked: `check` does not have all of them.
[ "$*" != run ] || [ "${STREAMS_GROUPS_CHECK:-yes}" = no ] || streams-groups check >&2 || true
exec streams-groups "$@"
