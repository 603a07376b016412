#!/bin/bash
# Starts a Spark executor on Kubernetes, configured by the variables that Spark's scheduler sets in its pods.
set -euo pipefail

SPARK_HOME=$(python -c 'import pyspark; print(pyspark.__path__[0])')
export SPARK_HOME
options=()
for ((number = 0; ; number++)); do
    name=SPARK_JAVA_OPT_$number
    [ -n "${!name+set}" ] || break
    options+=("${!name}")
done

exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${SPARK_EXTRA_CLASSPATH:+$SPARK_EXTRA_CLASSPATH:}$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
