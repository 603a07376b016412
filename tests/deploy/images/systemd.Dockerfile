# The image with systemd as its first process, to run the unit; of systemd's own units only the journal. The image's user
# is removed, because systemd-sysusers creates the one of the unit.
FROM stand-in/streams-groups
USER root
RUN apt-get update \
    && apt-get install --yes --no-install-recommends systemd \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /opt/java/openjdk/bin/java /usr/local/bin/java \
    && rm -f /lib/systemd/system/*.wants/* /etc/systemd/system/*.wants/* \
    && ln -s ../systemd-journald.socket /lib/systemd/system/sockets.target.wants/ \
    && rm /etc/streams-groups/config.yaml \
    && /usr/sbin/userdel streams-groups
COPY streams-groups.service /etc/systemd/system/streams-groups.service
COPY streams-groups.sysusers /etc/sysusers.d/streams-groups.conf
STOPSIGNAL SIGRTMIN+3
HEALTHCHECK NONE
ENTRYPOINT ["/lib/systemd/systemd"]
CMD ["--unit=multi-user.target"]
