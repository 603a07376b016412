# In place of prom/prometheus: Debian's, with the same paths and options.
FROM stand-in/debian:bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /etc/prometheus /prometheus \
    && chown nobody:nogroup /prometheus
USER nobody
EXPOSE 9090
VOLUME /prometheus
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
