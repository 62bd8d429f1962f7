package core

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lengthPrefixed is a minimal encoding for tests: records are a length and a payload.
type lengthPrefixed struct{}

func (lengthPrefixed) Len(data []byte) int {
	n, w := binary.Uvarint(data)
	return w + int(n)
}

// body splits a record into topic, key and payload.
func (e lengthPrefixed) body(record []byte) (topic, key, payload []byte) {
	_, w := binary.Uvarint(record)
	rest := record[w:]
	topic, rest = rest[1:1+rest[0]], rest[1+rest[0]:]
	return topic, rest[1 : 1+rest[0]], rest[1+rest[0]:]
}

func (e lengthPrefixed) Topic(record []byte) []byte {
	topic, _, _ := e.body(record)
	return topic
}

func (e lengthPrefixed) Key(record []byte) []byte {
	_, key, _ := e.body(record)
	return key
}

// Decode gives headers that Append wrote into the payload back in it.
func (e lengthPrefixed) Decode(record []byte) (Message, error) {
	topic, key, payload := e.body(record)
	return Message{Topic: string(topic), Key: string(key), Payload: payload}, nil
}

// Append writes headers in front of the payload, sorted, as name=value; and a bar.
func (lengthPrefixed) Append(dst []byte, m *Message) []byte {
	payload := ""
	for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
		payload += k + "=" + m.Headers[k] + ";"
	}
	if payload != "" {
		payload += "|"
	}
	payload += string(m.Payload)
	dst = binary.AppendUvarint(dst, uint64(2+len(m.Topic)+len(m.Key)+len(payload)))
	dst = append(append(dst, byte(len(m.Topic))), m.Topic...)
	dst = append(append(dst, byte(len(m.Key))), m.Key...)
	return append(dst, payload...)
}

// post is one message of a test.
type post struct{ topic, payload, key string }

// batchOf encodes posts, neighbours on one topic as one run.
func batchOf(posts ...post) *Batch {
	b := &Batch{}
	for _, p := range posts {
		start := len(b.Data)
		b.Data = lengthPrefixed{}.Append(b.Data, &Message{Topic: p.topic, Key: p.key, Payload: []byte(p.payload)})
		if n := len(b.Runs); n > 0 && string(b.Runs[n-1].Topic) == p.topic {
			b.Runs[n-1].End = len(b.Data)
			b.Runs[n-1].Count++
			b.Runs[n-1].Keyed = b.Runs[n-1].Keyed || p.key != ""
			continue
		}
		b.Runs = append(b.Runs, Run{Topic: []byte(p.topic), Start: start, End: len(b.Data), Count: 1, Keyed: p.key != ""})
	}
	return b
}

// numbered returns n posts on topic with payloads from, from+1, …
func numbered(topic string, from, n int) []post {
	posts := make([]post, n)
	for i := range posts {
		posts[i] = post{topic: topic, payload: fmt.Sprint(from + i)}
	}
	return posts
}

func payloads(posts []post) []string {
	out := make([]string, len(posts))
	for i, p := range posts {
		out[i] = p.payload
	}
	return out
}

func newBroker(t testing.TB, change func(*Options)) *Broker {
	t.Helper()
	o := DefaultOptions()
	o.Encoding = lengthPrefixed{}
	if change != nil {
		change(&o)
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func subscribe(t testing.TB, b *Broker, o SubscribeOptions) *Subscription {
	t.Helper()
	s, err := b.Subscribe(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func publish(t testing.TB, b *Broker, posts ...post) []Run {
	t.Helper()
	return publishBatch(t, b, batchOf(posts...))
}

func publishBatch(t testing.TB, b *Broker, batch *Batch) []Run {
	t.Helper()
	if err := b.Publish(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	return batch.Runs
}

// records splits a delivery into payloads.
func records(d *Delivery) []string {
	var out []string
	for _, piece := range d.Pieces {
		for len(piece) > 0 {
			n := lengthPrefixed{}.Len(piece)
			_, _, payload := lengthPrefixed{}.body(piece[:n])
			out = append(out, string(payload))
			piece = piece[n:]
		}
	}
	return out
}

// takeAll takes and settles everything that is queued.
func takeAll(s *Subscription) []string {
	var d Delivery
	var out []string
	for s.Take(&d, 64<<10) {
		out = append(out, records(&d)...)
		s.Settle(&d, true)
	}
	return out
}

func wantPayloads(t testing.TB, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d messages, want %d: %.200q … want %.200q", len(got), len(want), got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("message %d is %q, want %q", i, got[i], want[i])
		}
	}
}

func wantEnded(t testing.TB, s *Subscription, reason EndReason, lost uint64) {
	t.Helper()
	select {
	case <-s.Done():
	default:
		t.Fatalf("subscription goes on, want it to end as %s", reason)
	}
	if e := s.Ending(); e.Reason != reason || e.Lost != lost {
		t.Fatalf("ended as %s with %d lost, want %s with %d", e.Reason, e.Lost, reason, lost)
	}
}

func wantMemory(t testing.TB, b *Broker, want int64) {
	t.Helper()
	if got := b.Stats().Memory; got != want {
		t.Fatalf("broker holds %d bytes, want %d", got, want)
	}
}

const testPatience = 5 * time.Second
