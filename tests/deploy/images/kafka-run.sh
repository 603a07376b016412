#!/bin/bash
# Writes server.properties from KAFKA_... and formats the storage, if it is not formatted yet; then starts the broker.
set -uo pipefail
export CLASSPATH="/opt/kafka/libs/*" CLUSTER_ID="${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}"
export JAVA_TOOL_OPTIONS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=/etc/kafka/docker/log4j2.properties"
setup=$(java kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
    --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config 2>&1) ||
    grep -qi "already formatted" <<<"$setup" || {
    echo "$setup" >&2
    exit 1
}
exec java -Xmx512m kafka.Kafka /opt/kafka/config/server.properties
