#!/bin/sh
# subscribe.sh PATTERN...   prints every frame as JSON, until Ctrl-C
set -eu
server=${TINYBROKER_SERVER:-127.0.0.1:7710}
patterns=
for p; do
	patterns="$patterns${patterns:+, }\"$p\""
done
# grpcurl sends this one request and half-closes; the subscription goes on.
exec grpcurl -plaintext -d "{\"open\": {\"topic_patterns\": [$patterns], \"client_name\": \"grpcurl\"}}" \
	"$server" tinybroker.v1.BrokerService/Subscribe
