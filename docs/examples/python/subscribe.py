"""python3 subscribe.py PATTERN...   prints every message whose topic matches, and comes back after an eviction"""
import sys

import grpc

from client import comes_back, command_line, connect, pause
from tinybroker.v1 import tinybroker_pb2 as tb


def subscribe(broker, request):
    """Reads one subscription to its end. Returns the call, and whether it was open."""
    opened = False
    # One request, then the request side is half-closed; the subscription goes on.
    call = broker.Subscribe(iter([tb.SubscribeRequest(open=request)]))
    try:
        for frame in call:
            if frame.HasField("opened"):
                opened = True
                request.subscription_id = frame.opened.subscription_id  # the same again next time
                print("subscribed as", frame.opened.subscription_id, file=sys.stderr, flush=True)
            for message in frame.messages:
                print(message.topic, message.payload.decode(errors="replace"), flush=True)
    except grpc.RpcError as error:
        print(error.code().name, error.details(), file=sys.stderr, flush=True)
    # The trailers repeat what the last frame says, also for those who read on too late to get it.
    end = dict(call.trailing_metadata() or ())
    if "tinybroker-close-reason" in end:
        print(f"{end['tinybroker-close-reason']}: {end['tinybroker-close-lost']} messages lost", file=sys.stderr, flush=True)
    return call, opened


def main(patterns):
    broker = connect()
    request = tb.OpenSubscription(topic_patterns=patterns, client_name="python-subscriber")
    attempt = 0
    while True:
        call, opened = subscribe(broker, request)
        if not comes_back(call):
            return 1
        attempt = 0 if opened else attempt + 1
        pause(attempt)


sys.exit(main(command_line(1, None, "subscribe.py PATTERN...")))
