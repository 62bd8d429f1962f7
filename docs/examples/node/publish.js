// node publish.js TOPIC PAYLOAD [KEY]   publishes one message
// node publish.js TOPIC < lines         publishes each line of standard input
import { createInterface } from 'node:readline';
import { commandLine, connect, errorText } from './tinybroker.js';

const [topic, payload, key = ''] = commandLine(1, 3, 'node publish.js TOPIC [PAYLOAD [KEY]]');
const client = connect();

// now is the time as the contract has it: 64 bits of seconds are a text.
function now() {
  const ms = Date.now();
  return { seconds: String(Math.floor(ms / 1000)), nanos: (ms % 1000) * 1_000_000 };
}

function publishOne() {
  const message = { topic, payload: Buffer.from(payload), key, headers: { 'content-type': 'text/plain' }, publish_time: now() };
  return new Promise((resolve, reject) => {
    client.Publish(message, { deadline: Date.now() + 5_000 }, (err, response) => (err ? reject(err) : resolve(response)));
  });
}

// publishLines keeps at most WINDOW messages unconfirmed, and waits when the connection takes no more. So a broker that
// holds the publisher back holds back whoever writes to standard input, and memory stays small.
const WINDOW = 1000;
const FRAME = 100; // messages that share a frame, or
const FRAME_BYTES = 64 * 1024; // a frame may have 4 MiB

async function publishLines(input) {
  const call = client.PublishStream();
  let sent = 0;
  let confirmed = 0;
  let refused = 0;
  let frame = [];
  let bytes = 0;
  let full = false;

  let failure = null;

  call.on('data', (response) => {
    confirmed = Number(response.accepted_through);
    for (const f of response.failures) {
      refused += Number(f.count) || 1;
      console.error(`message ${f.position}: ${f.reason}: ${f.text}`);
    }
    call.emit('progress');
  });
  call.on('drain', () => {
    full = false;
    call.emit('progress');
  });
  const ended = new Promise((resolve) => {
    call.on('end', resolve);
    call.on('error', (err) => {
      failure = err;
      call.emit('progress');
      resolve();
    });
  });

  function flush() {
    if (frame.length === 0 || failure) return;
    // max_wait: rather be slowed for 5 s than have slow subscribers evicted.
    full = !call.write({ messages: frame, max_wait: { seconds: '5' } });
    frame = [];
    bytes = 0;
  }

  for await (const line of createInterface({ input, crlfDelay: Infinity })) {
    if (frame.length === 0) setImmediate(flush); // a line that comes alone goes out alone
    frame.push({ topic, payload: Buffer.from(line), publish_time: now() });
    bytes += line.length;
    sent++;
    if (frame.length >= FRAME || bytes >= FRAME_BYTES) flush();
    while (!failure && (full || sent - confirmed >= WINDOW)) await new Promise((resolve) => call.once('progress', resolve));
    if (failure) break;
  }
  flush();
  call.end();
  await ended;
  if (failure) throw new Error(`${sent - confirmed} of ${sent} messages are unconfirmed: ${errorText(failure)}`);
  return { sent, refused };
}

try {
  if (payload !== undefined) {
    const { receivers } = await publishOne();
    console.error(`taken by ${receivers} subscriptions`);
  } else {
    const { sent, refused } = await publishLines(process.stdin);
    console.error(`${sent} messages, ${refused} refused`);
    if (refused > 0) process.exitCode = 1;
  }
} catch (err) {
  console.error(err.code === undefined ? err.message : errorText(err));
  process.exitCode = 1;
}
client.close();
