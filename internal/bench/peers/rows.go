package main

import (
	"context"
	"fmt"
	"strings"
)

// row is a workload, measured on both sides. Each side returns a value for each metric.
type row struct {
	name, title string
	peer        string
	metrics     []metric
	tiny, other func(context.Context, *settings) ([]float64, error)
}

// load is a flow of messages, the same for both sides. There are as many as keep the faster side busy for about a second: the first
// tenths of it go into pages that the process has not touched before and into windows that are still small.
type load struct {
	pubs, subs int
	size       int
	messages   int // of each publisher
	topics     int
	group      bool // subscribers share the messages
}

// topicRoot is the topic of a load, and where there are many what they begin with.
const topicRoot = "bench.load"

// topicsOf are the topics of a load.
func topicsOf(l load) []string {
	if l.topics <= 1 {
		return []string{topicRoot}
	}
	topics := make([]string, l.topics)
	for i := range topics {
		topics[i] = fmt.Sprintf("%s.%d", topicRoot, i)
	}
	return topics
}

func (l load) scaled(s *settings) load {
	l.messages = max(1, int(float64(l.messages)*s.scale))
	return l
}

func rate(target string) []metric {
	return []metric{{unit: "messages/s received", target: target}}
}

func allRows() []row {
	rows := []row{
		flow("1x1-16", "1 publisher, 1 subscriber, 16 B", load{pubs: 1, subs: 1, size: 16, messages: 20_000_000}, "6"),
		flow("1x1-128", "1 publisher, 1 subscriber, 128 B", load{pubs: 1, subs: 1, size: 128, messages: 16_000_000}, "2.5"),
		flow("1x1-1k", "1 publisher, 1 subscriber, 1 KiB", load{pubs: 1, subs: 1, size: 1 << 10, messages: 4_000_000}, "1.2"),
		flow("1x1-4k", "1 publisher, 1 subscriber, 4 KiB", load{pubs: 1, subs: 1, size: 4 << 10, messages: 1_600_000}, "1.1"),
		flow("1x4", "1 publisher, 4 subscribers, 128 B", load{pubs: 1, subs: 4, size: 128, messages: 4_000_000}, "3"),
		flow("1x16", "1 publisher, 16 subscribers, 128 B", load{pubs: 1, subs: 16, size: 128, messages: 1_200_000}, "3"),
		flow("4x4", "4 publishers, 4 subscribers, one topic, 128 B", load{pubs: 4, subs: 4, size: 128, messages: 1_000_000}, "2.5"),
		flow("topics", "1 publisher, 10 000 topics, one `**` subscriber, 128 B", load{pubs: 1, subs: 1, size: 128, messages: 8_000_000, topics: 10_000}, "2"),
		{
			name: "group-none", title: "group of 4, ack NONE, 128 B", peer: "NATS queue group", metrics: rate("2.5"),
			tiny: flowing(tinyGroup, groupLoad), other: flowing(natsFlow, groupLoad),
		},
		{
			name: "group-ack", title: "group of 4, ack EXPLICIT, 128 B, publish to last ack", peer: "JetStream", metrics: rate("8"),
			tiny: flowing(tinyAcks, ackLoad), other: flowing(jetStreamAcks, ackLoad),
		},
		{
			name: "roundtrip", title: "one message at a time, 128 B, publish to receipt", peer: "NATS core",
			metrics: []metric{{", p50", "µs", "≤ 1.0"}, {", p99", "µs", "≤ 1.0"}},
			tiny:    tinyRoundTrip, other: natsRoundTrip,
		},
		{
			name: "fan100", title: "1 000 messages/s to 100 subscribers, 128 B", peer: "NATS core",
			metrics: []metric{{", p50", "µs", ""}, {", p99", "µs", "≤ 1.0"}},
			tiny:    tinyFan, other: natsFan,
		},
	}
	return append(rows, otherRows()...)
}

// otherRows are those that are no flow of messages.
func otherRows() []row {
	idle := []metric{{", resident memory of each", "KiB", "≤ 16 KiB"}, {", processor use", "% of a core", "< 1 %"}}
	return []row{
		unaryRow("unary-1", "unary Publish with the generated stub, 1 caller", 1),
		unaryRow("unary-32", "unary Publish with the generated stub, 32 callers", 32),
		{
			name: "match", title: "match of an uncached topic among 1 000 000 patterns", peer: "NATS sublist without cache",
			metrics: []metric{{unit: "matches/s", target: "1"}}, tiny: tinyMatch, other: natsMatch,
		},
		{
			name: "idle", title: "20 000 idle subscriptions over 20 connections", peer: "NATS core",
			metrics: idle, tiny: tinyIdle, other: natsIdle,
		},
		{
			name: "start", title: "a server of which nothing is wanted", peer: "NATS core",
			metrics: []metric{{", size of the program", "MiB", ""}, {", from start to listening", "ms", ""}, {", resident memory", "MiB", ""}},
			tiny:    tinyStart, other: natsStart,
		},
	}
}

var (
	groupLoad = load{pubs: 1, subs: 4, size: 128, messages: 6_000_000, group: true}
	ackLoad   = load{pubs: 1, subs: 4, size: 128, messages: 1_000_000, group: true}
)

// flow is a row of broadcast.
func flow(name, title string, l load, target string) row {
	return row{
		name: name, title: title, peer: "NATS core", metrics: rate(target),
		tiny: flowing(tinyFlow, l), other: flowing(natsFlow, l),
	}
}

// flowing makes a measurement of a flow, which returns messages a second.
func flowing(f func(context.Context, *settings, load) (float64, error), l load) func(context.Context, *settings) ([]float64, error) {
	return func(ctx context.Context, s *settings) ([]float64, error) {
		v, err := f(ctx, s, l.scaled(s))
		return []float64{v}, err
	}
}

// chooseRows returns the rows whose names begin with one of those in list; all when it is empty.
func chooseRows(list string) ([]row, error) {
	rows := allRows()
	if list == "" {
		return rows, nil
	}
	var chosen []row
	used := map[string]bool{}
	wanted := strings.Split(list, ",")
	for _, r := range rows {
		asked := false
		for _, w := range wanted {
			if r.name == w || strings.HasPrefix(r.name, w) && !exact(rows, w) {
				asked, used[w] = true, true
			}
		}
		if asked {
			chosen = append(chosen, r)
		}
	}
	for _, w := range wanted {
		if !used[w] {
			return nil, fmt.Errorf("no row is called %q", w)
		}
	}
	return chosen, nil
}

func exact(rows []row, name string) bool {
	for _, r := range rows {
		if r.name == name {
			return true
		}
	}
	return false
}
