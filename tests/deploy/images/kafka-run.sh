#!/bin/bash
# Writes server.properties from KAFKA_..., formats the storage unless it is formatted, and starts the broker.
set -euo pipefail
export CLASSPATH="/opt/kafka/libs/*"
java -Xmx256m kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
    --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config
java -Xmx256m kafka.tools.StorageTool format --ignore-formatted --cluster-id "${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}" \
    -c /opt/kafka/config/server.properties
exec java -Xmx512m kafka.Kafka /opt/kafka/config/server.properties
