#!/bin/sh
# Grants the ACLs that the job needs. Usage: acls.sh BROKER:PORT User:streams-groups [ADMIN.properties]
# These variables grant further ACLs: VERIFY=yes on the groups, for `streams-groups verify`, lag, copies and descriptions;
# APPLICATIONS=yes on the applications' topics, for these and the reasons of NotReady groups;
# FACTS=yes for the table broker_facts, in addition to the others.
set -eu

server=${1:?BROKER:PORT} principal=${2:?User:NAME}
acls() {
  kafka-acls.sh --bootstrap-server "$server" ${admin:+--command-config "$admin"} \
    --add --force --allow-principal "$principal" "$@"
}
admin=${3-}

acls --operation Describe --operation Read --topic __consumer_offsets
acls --operation Describe --group streams-groups --resource-pattern-type prefixed
if [ "${VERIFY-}" = yes ]; then acls --operation Describe --group '*'; fi
if [ "${APPLICATIONS-}" = yes ]; then acls --operation Describe --topic '*'; fi
if [ "${FACTS-}" = yes ]; then
  acls --operation DescribeConfigs --group '*'
  acls --operation DescribeConfigs --topic '*'
  acls --operation Describe --transactional-id '*'
  acls --operation DescribeConfigs --cluster
fi
