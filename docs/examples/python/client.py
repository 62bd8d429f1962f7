"""What publishers, subscribers and workers share: the connection, and when to come back to a broker."""
import os
import random
import sys
import time

import grpc

from tinybroker.v1 import tinybroker_pb2_grpc

COMES_BACK_AFTER = {"CLOSE_REASON_EVICTED", "CLOSE_REASON_STALLED", "CLOSE_REASON_SHUTTING_DOWN"}
COMES_BACK_FROM = {
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED,
    # What becomes of a broken connection, or of a proxy's answer. The broker has no such words for a subscription.
    grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN,
}


def connect():
    """TINYBROKER_TLS_CA is for a broker with TLS, TINYBROKER_TOKEN_FILE for one that wants a token, which goes over TLS only."""
    address = os.environ.get("TINYBROKER_SERVER") or "127.0.0.1:7710"
    options = [
        ("grpc.keepalive_time_ms", 10_000),  # more often than every 5 s is cut off
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    ca, token_file = os.environ.get("TINYBROKER_TLS_CA"), os.environ.get("TINYBROKER_TOKEN_FILE")
    if ca:
        credentials = grpc.ssl_channel_credentials(read(ca))
        if token_file:
            credentials = grpc.composite_channel_credentials(credentials, grpc.metadata_call_credentials(TokenFile(token_file)))
        channel = grpc.secure_channel(address, credentials, options=options)
    else:
        channel = grpc.insecure_channel(address, options=options)
    return tinybroker_pb2_grpc.BrokerServiceStub(channel)


class TokenFile(grpc.AuthMetadataPlugin):
    """Reads the token for each call, so that it can be exchanged."""

    def __init__(self, path):
        self.path = path

    def __call__(self, context, callback):
        callback((("authorization", "Bearer " + read(self.path).decode().strip()),), None)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def comes_back(call):
    """Tells whether to subscribe again after this call has ended. Not after REPLACED, KICKED, REVOKED and LEFT."""
    reason = dict(call.trailing_metadata() or ()).get("tinybroker-close-reason")
    if reason:
        return reason in COMES_BACK_AFTER
    return call.code() == grpc.StatusCode.OK or call.code() in COMES_BACK_FROM


def pause(attempt):
    """About 100 ms, then twice as long each time up to 5 s, and never all clients at once."""
    most = min(0.1 * 2 ** attempt, 5)
    time.sleep(random.uniform(most / 2, most))


def command_line(least, most, usage):
    """Returns the arguments, or says how to use the program when there are too few or too many. most: None for any number."""
    given = sys.argv[1:]
    if len(given) < least or most is not None and len(given) > most:
        print("usage: python3", usage, file=sys.stderr)
        sys.exit(64)
    return given
