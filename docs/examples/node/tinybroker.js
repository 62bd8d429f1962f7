// What publishers, subscribers and workers share: the client, and when to come back to a broker.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const proto = fileURLToPath(new URL('../../../proto/tinybroker/v1/tinybroker.proto', import.meta.url));

const contract = grpc.loadPackageDefinition(
  protoLoader.loadSync(proto, {
    keepCase: true, // field names as in the contract
    longs: String, // uint64 does not fit into a number; BigInt(text) counts on
    enums: String,
    defaults: true, // lists are there even when they are empty
    oneofs: true,
  }),
).tinybroker.v1;

// credentials are what the environment says: TINYBROKER_TLS_CA for a broker with TLS, TINYBROKER_TOKEN_FILE for one that
// wants a token, which goes over TLS only and is read for each call, so that it can be exchanged.
function credentials({ TINYBROKER_TLS_CA: ca, TINYBROKER_TOKEN_FILE: tokenFile } = process.env) {
  if (!ca) return grpc.credentials.createInsecure();
  const tls = grpc.credentials.createSsl(readFileSync(ca));
  if (!tokenFile) return tls;
  const token = grpc.credentials.createFromMetadataGenerator((_, callback) => {
    const metadata = new grpc.Metadata();
    metadata.set('authorization', `Bearer ${readFileSync(tokenFile, 'utf8').trim()}`);
    callback(null, metadata);
  });
  return grpc.credentials.combineChannelCredentials(tls, token);
}

export function connect(address = process.env.TINYBROKER_SERVER || '127.0.0.1:7710') {
  return new contract.BrokerService(address, credentials(), {
    // Notices within 15 s that the broker's machine has gone. More often than every 5 s is cut off.
    'grpc.keepalive_time_ms': 10_000,
    'grpc.keepalive_timeout_ms': 5_000,
    'grpc.keepalive_permit_without_calls': 1,
  });
}

// errorText is an error of a call for people: the status and the broker's words.
export const errorText = (err) => `${grpc.status[err.code] ?? 'error'}: ${err.details ?? err.message}`;

const comeBackAfter = new Set(['EVICTED', 'STALLED', 'SHUTTING_DOWN']);
const comeBackFrom = new Set([
  grpc.status.UNAVAILABLE,
  grpc.status.RESOURCE_EXHAUSTED,
  // What becomes of a broken connection, or of a proxy's answer. The broker has no such words for a subscription.
  grpc.status.CANCELLED,
  grpc.status.DEADLINE_EXCEEDED,
  grpc.status.INTERNAL,
  grpc.status.UNKNOWN,
]);

// subscribe opens one subscription and hands every frame to onFrame, one after the other: while onFrame is at work, no
// more is read, and the broker's queue fills instead of this process. It returns how the stream ended.
export async function subscribe(client, open, onFrame, onCall = () => {}) {
  const call = client.Subscribe();
  const end = { opened: false, reason: '', lost: '0', error: null };
  // The trailers repeat what the last frame says, also for those who read on too late to get it.
  call.on('status', ({ metadata }) => {
    end.reason = String(metadata.get('tinybroker-close-reason')[0] ?? '').replace('CLOSE_REASON_', '');
    end.lost = String(metadata.get('tinybroker-close-lost')[0] ?? '0');
  });
  onCall(call);
  call.write({ open });
  try {
    for await (const frame of call) {
      if (frame.opened) end.opened = true;
      await onFrame(frame, call);
    }
  } catch (err) {
    if (err.code === undefined) throw err; // of onFrame
    end.error = err;
  } finally {
    call.cancel(); // does nothing to a call that has ended
  }
  return end;
}

// comesBack tells whether to subscribe again: after an eviction, and while the broker is away or busy. Not after
// REPLACED, since another process has taken the id over, nor after KICKED, REVOKED or LEFT, nor when the request is wrong.
export function comesBack(end) {
  if (end.reason) return comeBackAfter.has(end.reason);
  return end.error === null || comeBackFrom.has(end.error.code);
}

// backoff waits before attempt n, from 0: about 100 ms, then twice as long each time up to 5 s, never all clients at once.
export function backoff(n) {
  const most = Math.min(100 * 2 ** n, 5_000);
  return new Promise((resolve) => setTimeout(resolve, most / 2 + (Math.random() * most) / 2));
}

// commandLine returns the arguments, or says how to use the program when there are too few or too many.
export function commandLine(least, most, usage) {
  const given = process.argv.slice(2);
  if (given.length < least || given.length > most) {
    console.error(`usage: ${usage}`);
    process.exit(64);
  }
  return given;
}
