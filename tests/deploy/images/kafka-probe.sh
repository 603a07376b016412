#!/bin/bash
# Takes the options of kafka-broker-api-versions.sh, whose jar is not published; only connects to the server.
server=${2%%,*}
exec timeout 5 bash -c ": </dev/tcp/${server%:*}/${server##*:}"
