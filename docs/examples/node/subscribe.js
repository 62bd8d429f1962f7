// node subscribe.js PATTERN...   prints every message whose topic matches, until Ctrl-C
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { backoff, comesBack, commandLine, connect, errorText, subscribe } from './tinybroker.js';

// The same id each time: when the connection breaks before the broker can say why, the next `opened` tells.
const id = process.env.SUBSCRIPTION_ID || randomUUID();
const patterns = commandLine(1, Infinity, 'node subscribe.js PATTERN...');
const open = { subscription_id: id, topic_patterns: patterns, client_name: 'node-subscriber' };
const client = connect();
let broker = '';

async function onFrame(frame) {
  if (frame.opened) {
    const { broker_run_id, previous } = frame.opened;
    if (previous) console.error(`evicted before: ${previous.lost} messages lost`);
    if (broker && broker !== broker_run_id) console.error('the broker was restarted: what was published meanwhile is missing');
    broker = broker_run_id;
    console.error(`subscribed as ${frame.opened.subscription_id}`);
  }
  if (frame.lagging) console.error(`falling behind: ${frame.lagging.queued} messages wait`);
  if (frame.dropped_before !== '0') console.error(`${frame.dropped_before} messages were dropped here`);
  for (const { topic, payload } of frame.messages) {
    // Waiting here is what keeps this process small: nothing more is read meanwhile.
    if (!process.stdout.write(`${topic} ${payload}\n`)) await once(process.stdout, 'drain');
  }
}

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(0));

for (let attempt = 0; ; attempt++) {
  const end = await subscribe(client, open, onFrame);
  console.error(end.error ? errorText(end.error) : `${end.reason || 'ended'}: ${end.lost} messages lost`);
  if (!comesBack(end)) process.exit(1);
  if (end.opened) attempt = 0;
  await backoff(attempt);
}
