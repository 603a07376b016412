# In place of eclipse-temurin:17-jre-jammy: Debian's JRE, in the same directory.
FROM stand-in/debian:bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /opt/java \
    && cp -rL /usr/lib/jvm/java-17-openjdk-amd64 /opt/java/openjdk \
    && { ! [ -f /opt/certificates/cacerts ] || cp /opt/certificates/cacerts /opt/java/openjdk/lib/security/cacerts; }
ENV JAVA_HOME=/opt/java/openjdk PATH=/opt/java/openjdk/bin:/usr/sbin:/usr/bin:/sbin:/bin
