// node worker.js GROUP PATTERN...   is a member of a consumer group, until SIGTERM or Ctrl-C
import { setTimeout as sleep } from 'node:timers/promises';
import { backoff, comesBack, commandLine, connect, errorText, subscribe } from './tinybroker.js';

const [group, ...patterns] = commandLine(2, Infinity, 'node worker.js GROUP PATTERN...');
const open = { consumer_group: group, topic_patterns: patterns, max_in_flight: 4, client_name: 'node-worker' };
const GRACE = 10_000; // how long what runs at a stop may take
const client = connect();
let stopping = false;

// work is yours. What it throws makes the message come again; a Reject makes it a dead letter at once.
class Reject extends Error {}

async function work(message, attempt) {
  const job = JSON.parse(message.payload);
  await sleep(job.ms ?? 0);
  if (job.impossible) throw new Reject(job.impossible);
  if (attempt <= (job.fails ?? 0)) throw new Error(`attempt ${attempt} failed`);
  console.log(`done ${job.name} attempt ${attempt}`);
}

// Membership is one stream and what was delivered on it. Delivery numbers mean nothing on the next one.
class Membership {
  constructor(call) {
    this.call = call;
    this.running = new Map(); // delivery number: what ends when it is settled
    this.lastOfKey = new Map(); // key: the last delivery with it
    this.failed = new Map(); // key: the number of the request that says that a message has failed
    this.said = 0n; // requests, after `open`
    this.over = false;
  }

  say(request) {
    if (this.over) return;
    this.said++;
    this.call.write(request);
  }

  take(frame) {
    frame.messages.forEach((message, i) => {
      const sequence = BigInt(frame.first_sequence) + BigInt(i);
      const before = message.key && this.lastOfKey.get(message.key);
      const settled = this.handle(sequence, message, frame, before).then((done) => {
        this.running.delete(sequence);
        if (this.lastOfKey.get(message.key) === settled) this.lastOfKey.delete(message.key);
        return done;
      });
      this.running.set(sequence, settled);
      if (message.key) this.lastOfKey.set(message.key, settled);
    });
  }

  // handle settles one delivery and returns whether its work was done. One that follows another of the same key waits
  // for it, and goes back with it.
  async handle(sequence, message, frame, before) {
    const ranges = [{ first: String(sequence) }];
    if ((before && !(await before)) || this.isBehindFailed(message.key, frame) || stopping) {
      this.say({ nack: { ranges, action: 'NACK_ACTION_RELEASE' } });
      return false;
    }
    try {
      await work(message, frame.attempt);
      this.say({ ack: { ranges } });
      return true;
    } catch (err) {
      console.error(`${message.topic}: ${err.message}`);
      if (err instanceof Reject || err instanceof SyntaxError) {
        this.say({ nack: { ranges, action: 'NACK_ACTION_REJECT', reason: err.message } });
        return true; // a dead letter does not hold up those behind it
      }
      this.say({ nack: { ranges, action: 'NACK_ACTION_RETRY' } });
      if (message.key) this.failed.set(message.key, this.said);
      return false;
    }
  }

  // isBehindFailed tells whether the broker sent a message before it heard that one before it, of the same key, has failed.
  isBehindFailed(key, frame) {
    const failed = this.failed.get(key);
    if (failed === undefined) return false;
    if (BigInt(frame.requests_heard) < failed) return true;
    this.failed.delete(key);
    return false;
  }

  // keep extends the deadline of all that is here, three times in each, so that long work is not given to others.
  keep(deadline) {
    if (!deadline) return;
    const ms = Number(deadline.seconds) * 1000 + deadline.nanos / 1e6;
    if (ms === 0) return; // this group has none
    this.keeper = setInterval(() => {
      const ranges = [...this.running.keys()].map((n) => ({ first: String(n) }));
      if (ranges.length > 0) this.say({ extend: { ranges } });
    }, ms / 3);
  }

  // leave asks for nothing more, lets what runs finish, and then half-closes: what is still there goes back.
  async leave() {
    this.say({ leave: {} });
    await Promise.race([Promise.allSettled(this.running.values()), sleep(GRACE, null, { ref: false })]);
    this.end();
    this.call.end();
  }

  end() {
    this.over = true;
    clearInterval(this.keeper);
  }
}

let member = null;

function onFrame(frame) {
  if (frame.opened) {
    console.error(`member ${frame.opened.subscription_id} of ${group}`);
    member.keep(frame.opened.ack_deadline);
  }
  member.take(frame);
}

for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    stopping = true;
    if (member) member.leave();
    else process.exit(0);
  });
}

for (let attempt = 0; !stopping; attempt++) {
  const end = await subscribe(client, open, onFrame, (call) => (member = new Membership(call)));
  member.end();
  member = null;
  console.error(end.error ? errorText(end.error) : end.reason || 'ended');
  if (stopping) break;
  if (!comesBack(end)) process.exit(1);
  if (end.opened) attempt = 0;
  await backoff(attempt);
}
client.close();
