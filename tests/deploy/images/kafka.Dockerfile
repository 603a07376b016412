# In place of apache/kafka: the jars of the tests, configured from KAFKA_... by the class that the real image uses for it.
FROM stand-in/java
COPY jars /opt/kafka/libs
COPY log4j2.properties /etc/kafka/docker/log4j2.properties
COPY --chmod=755 kafka-run.sh /etc/kafka/docker/run
COPY --chmod=755 kafka-probe.sh /opt/kafka/bin/kafka-broker-api-versions.sh
RUN useradd --create-home appuser \
    && mkdir -p /etc/kafka/secrets /mnt/shared/config /opt/kafka/config /var/lib/kafka/data \
    && touch /etc/kafka/docker/server.properties \
    && chown -R appuser /etc/kafka /mnt/shared/config /opt/kafka/config /var/lib/kafka
USER appuser
EXPOSE 9092
VOLUME ["/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"]
CMD ["/etc/kafka/docker/run"]
