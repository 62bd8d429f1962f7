#!/bin/sh
# take-one.sh GROUP PATTERN SECONDS   joins a consumer group, acknowledges its first delivery after SECONDS, and leaves
set -eu
server=${TINYBROKER_SERVER:-127.0.0.1:7710}
{
	echo "{\"open\": {\"consumer_group\": \"$1\", \"topic_patterns\": [\"$2\"], \"max_in_flight\": 1}}"
	sleep "$3"
	# uint64 is a text in JSON, since a number would lose digits.
	echo '{"ack": {"ranges": [{"first": "1"}]}} {"leave": {}}'
} | grpcurl -plaintext -d @ "$server" tinybroker.v1.BrokerService/Subscribe
