"""python3 publish.py TOPIC PAYLOAD   publishes one message
python3 publish.py TOPIC < lines     publishes each line of standard input"""
import sys

from client import command_line, connect
from tinybroker.v1 import tinybroker_pb2 as tb


def frames(topic, lines):
    for line in lines:
        request = tb.PublishStreamRequest(messages=[tb.Message(topic=topic, payload=line.rstrip(b"\n"))])
        request.max_wait.FromSeconds(5)  # rather be slowed than have slow subscribers evicted
        yield request


def main(topic, payload=None):
    broker = connect()
    if payload is not None:
        answer = broker.Publish(tb.PublishRequest(topic=topic, payload=payload.encode(), headers={"trace-id": "17"}), timeout=5)
        print("taken by", answer.receivers, "subscriptions", file=sys.stderr)
        return 0
    confirmed = refused = 0
    for receipt in broker.PublishStream(frames(topic, sys.stdin.buffer)):
        confirmed = receipt.accepted_through
        for failure in receipt.failures:
            refused += max(failure.count, 1)
            print("message", failure.position, failure.reason, failure.text, file=sys.stderr)
    print(confirmed, "messages,", refused, "refused", file=sys.stderr)
    return 1 if refused else 0


sys.exit(main(*command_line(1, 2, "publish.py TOPIC [PAYLOAD]")))
