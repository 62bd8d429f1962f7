"""python3 worker.py GROUP PATTERN...   is a member of a consumer group, one message at a time, until SIGTERM or Ctrl-C"""
import queue
import signal
import sys
import threading

from client import command_line, connect
from tinybroker.v1 import tinybroker_pb2 as tb


def work(message, attempt):
    """Yours. An exception makes the message come again."""
    if message.payload.startswith(b"fails-once") and attempt == 1:
        raise RuntimeError("it failed")
    print("done", message.payload.decode(), "attempt", attempt, flush=True)


class Keeper:
    """Extends the deadline of one delivery, three times in each deadline, while work is being done."""

    def __init__(self, say, ranges, deadline):
        self.say, self.ranges, self.every, self.over = say, ranges, deadline / 3, threading.Event()

    def __enter__(self):
        if self.every > 0:
            threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.over.wait(self.every):
            self.say(tb.SubscribeRequest(extend=tb.ExtendDeadline(ranges=self.ranges)))

    def __exit__(self, *_):
        self.over.set()


def main(group, *patterns):
    says = queue.SimpleQueue()  # what this member says, in order; None half-closes
    says.put(tb.SubscribeRequest(open=tb.OpenSubscription(
        consumer_group=group, topic_patterns=patterns, max_in_flight=1, client_name="python-worker")))
    stopping = busy = False

    def leave(*_):
        nonlocal stopping
        if not stopping:
            stopping = True
            says.put(tb.SubscribeRequest(leave=tb.Leave()))  # nothing more, please
            if not busy:
                says.put(None)  # and nothing more from here: what is in flight goes back

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    deadline = 30
    for frame in connect().Subscribe(iter(says.get, None)):
        if frame.HasField("opened"):
            deadline = frame.opened.ack_deadline.ToTimedelta().total_seconds()
            print("member", frame.opened.subscription_id, file=sys.stderr, flush=True)
        for i, message in enumerate(frame.messages):
            if stopping:
                break
            busy = True
            ranges = [tb.SequenceRange(first=frame.first_sequence + i)]
            try:
                with Keeper(says.put, ranges, deadline):
                    work(message, frame.attempt)
                says.put(tb.SubscribeRequest(ack=tb.Ack(ranges=ranges)))
            except Exception as error:
                print(message.topic, error, file=sys.stderr, flush=True)
                says.put(tb.SubscribeRequest(nack=tb.Nack(ranges=ranges, action=tb.NACK_ACTION_RETRY)))
            busy = False
            if stopping:
                says.put(None)
    return 0


sys.exit(main(*command_line(2, None, "worker.py GROUP PATTERN...")))
