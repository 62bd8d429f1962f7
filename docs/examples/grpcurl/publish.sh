#!/bin/sh
# publish.sh TOPIC PAYLOAD [NAME=VALUE...]   publishes one message, with headers; says how many subscriptions took it
set -eu
server=${TINYBROKER_SERVER:-127.0.0.1:7710}
topic=$1
payload=$(printf %s "$2" | base64 | tr -d '\n') # bytes are base64 in JSON
shift 2
headers=
for pair; do
	headers="$headers${headers:+, }\"${pair%%=*}\": \"${pair#*=}\""
done
grpcurl -plaintext -d "{\"topic\": \"$topic\", \"payload\": \"$payload\", \"headers\": {$headers}}" \
	"$server" tinybroker.v1.BrokerService/Publish
