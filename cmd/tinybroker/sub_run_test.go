package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// What a subscriber says about its queue is what will happen to it.
func TestWordsOfSub(t *testing.T) {
	lagging := rpc.Lagging{Queued: 80, QueuedBytes: 1000, Capacity: 100}
	for _, c := range []struct {
		name string
		o    subOptions
		tell func(*subSession)
		want string
	}{
		{"lagging", subOptions{}, func(s *subSession) { s.lagging(lagging) },
			"falling behind: 80 of 100 queue slots are taken, by 1.0 kB; the broker evicts at the last\n"},
		{"lagging, evict", subOptions{overflow: "evict"}, func(s *subSession) { s.lagging(lagging) },
			"falling behind: 80 of 100 queue slots are taken, by 1.0 kB; the broker evicts at the last\n"},
		{"lagging, drop", subOptions{overflow: "drop-oldest"}, func(s *subSession) { s.lagging(lagging) },
			"falling behind: 80 of 100 queue slots are taken, by 1.0 kB; the broker drops what finds none\n"},
		{"stalled", subOptions{}, func(s *subSession) { s.ended(core.Ending{Reason: core.EndStalled, Lost: 7, Lived: time.Minute}) },
			"evicted by broker: nothing was read for too long, after 1m0s, 7 messages lost; read faster\n"},
		{"stalled member", subOptions{group: "g"}, func(s *subSession) { s.ended(core.Ending{Reason: core.EndStalled, Lived: time.Minute}) },
			"evicted by broker: nothing was read for too long, after 1m0s; what was in flight goes to other members of group g\n"},
		{"gap", subOptions{}, func(s *subSession) { s.gap(rpc.Gap{Outage: time.Second}) },
			"gap: what was published in the 1s without a connection is missing\n"},
		{"gap of a member", subOptions{group: "g"}, func(s *subSession) { s.gap(rpc.Gap{Outage: time.Second}) },
			"back in group g after 1s; what was in flight went to other members, or comes again\n"},
		{"gap of a member, restarted", subOptions{group: "g"}, func(s *subSession) { s.gap(rpc.Gap{Outage: time.Second, Restarted: true}) },
			"back in group g after 1s; the broker was restarted: what it held is lost\n"},
		{"evicted member", subOptions{group: "g"}, func(s *subSession) { s.gap(rpc.Gap{Outage: time.Second, Evicted: true}) }, ""},
	} {
		var stderr bytes.Buffer
		c.tell(&subSession{o: &c.o, notices: &notices{w: &stderr}})
		if got := stderr.String(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTextShowsRedeliveries(t *testing.T) {
	m := core.Message{Topic: "a.b", Key: "k", Payload: []byte("x"), PublishTime: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.Local)}
	for attempt, want := range map[uint32]string{
		1: "03:04:05.006 a.b k=k 1B x\n",
		2: "03:04:05.006 a.b k=k attempt=2 1B x\n",
	} {
		got, err := textFormat{}.append(nil, &rpc.Delivery{Message: m, Attempt: attempt})
		if err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

// TestAdviceToTheEvicted: a larger capacity does not help whom memory has run out for.
func TestAdviceToTheEvicted(t *testing.T) {
	for cause, want := range map[string]string{
		"queue full (500)":            "read faster, use --group, or raise --capacity",
		"memory full (1048576 bytes)": "read faster, use --group, or give the broker a larger --max-memory",
		"":                            "read faster, use --group, or raise --capacity",
	} {
		got := endingText(core.Ending{Reason: core.EndEvicted, Text: cause, Lost: 3, Lived: time.Second}, "")
		if !strings.HasSuffix(got, ", 3 messages lost; "+want) {
			t.Errorf("%q: %s", cause, got)
		}
	}
}

// Templates write JSON as -o json does, of a message without headers too.
func TestTemplateJSON(t *testing.T) {
	f, err := templateFormat("{{json .Headers}} {{json .Key}} {{json .Size}}", "\n", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		headers map[string]string
		want    string
	}{
		{nil, "{} \"<&>\" 0\n"},
		{map[string]string{"b": "<&>", "a": "\xff"}, "{\"a\":\"\\ufffd\",\"b\":\"<&>\"} \"<&>\" 0\n"},
	} {
		got, err := f(nil, &rpc.Delivery{Message: core.Message{Topic: "t", Key: "<&>", Headers: c.headers}})
		if err != nil || string(got) != c.want {
			t.Errorf("%q, %v, want %q", got, err, c.want)
		}
	}
}
