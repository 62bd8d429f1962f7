package core

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// The broker tells what operators care about on topics of its own: eventPrefix and the kind of the event, with a JSON object as
// the payload. Events are told to whoever subscribes at the time; nothing is kept.
const eventPrefix = ownPrefix + "event."

// ownPrefix begins the topics on which nobody but the broker publishes.
const ownPrefix = "$tb."

// who says whom an event is about.
type who struct {
	ID       string   `json:"subscription"`
	Client   string   `json:"client,omitempty"`
	Peer     string   `json:"peer,omitempty"`
	Group    string   `json:"group,omitempty"`
	Patterns []string `json:"patterns"`
}

func whoIs(c consumer) who {
	e := c.point()
	return who{ID: e.id, Client: e.client, Peer: e.peer, Group: groupOf(c), Patterns: e.patterns.Strings()}
}

// openedEvent is subscription.opened.
type openedEvent struct{ who }

// closedEvent is subscription.closed and subscription.evicted.
type closedEvent struct {
	who
	Reason string  `json:"reason"`
	Text   string  `json:"text"`
	Lost   uint64  `json:"lost"`
	Lived  float64 `json:"lived_seconds"`
}

// groupEvent is group.created and group.expired.
type groupEvent struct {
	Group   string `json:"group"`
	Dropped uint64 `json:"dropped,omitempty"`
}

// laneEvent is group.lane_expired.
type laneEvent struct {
	Group    string   `json:"group"`
	Patterns []string `json:"patterns"`
	Dropped  int      `json:"dropped,omitempty"`
}

// deadLetterEvent is deadletter.
type deadLetterEvent struct {
	Group    string `json:"group"`
	Topic    string `json:"topic"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
}

func (b *Broker) farewell(c consumer, ending Ending, evicted bool) {
	kind := "subscription.closed"
	if evicted {
		kind = "subscription.evicted"
	}
	b.emit(kind, closedEvent{
		who:    whoIs(c),
		Reason: ending.Reason.String(),
		Text:   ending.Text,
		Lost:   ending.Lost,
		Lived:  ending.Lived.Round(time.Millisecond).Seconds(),
	})
}

// emit publishes an event if anybody listens, and waits for nobody. No lock may be held that comes after Broker.reclaimMu.
func (b *Broker) emit(kind string, event any) {
	b.emitAs(&publication{id: b.publications.Add(1)}, kind, event)
}

// emitAs is emit as a part of p.
func (b *Broker) emitAs(p *publication, kind string, event any) {
	topic := eventPrefix + kind
	if !b.router.heard([]byte(topic)) {
		return
	}
	payload, err := json.Marshal(event)
	if err != nil {
		return // strings, numbers and slices of them cannot fail to encode
	}
	m := Message{Topic: topic, Payload: payload, PublishTime: b.clock.Now()}
	record := b.encoding.Append(nil, &m)
	if b.acquireOwn(ownSize(record)) {
		b.publishOwn(p, topic, record)
	} else {
		b.dropOwn(DropMemory) // nobody is evicted for it: it may tell of an eviction
	}
}

// ownRoom is how far the broker's own messages may exceed max_memory. A dead letter mostly takes the place of a message that is about to go, but a
// message may die in any number of groups.
const ownRoom = 16 << 20

func (b *Broker) ownLimit() int64 { return b.memory.limit + ownRoom }

// acquireOwn is memory.acquire for the broker's own.
func (b *Broker) acquireOwn(size int64) bool { return b.memory.acquireWithin(size, b.ownLimit()) }

// ownSize is what a record of the broker's own takes.
func ownSize(record []byte) int64 { return int64(len(record)) + frameOverhead }

// publishOwn publishes a record of the broker's own, which has been accounted for, as a part of p, by whose grace alone it waits for anybody. It goes on
// while the broker drains.
func (b *Broker) publishOwn(p *publication, topic string, record []byte) {
	f := adoptFrame(&b.memory, record)
	p.own, p.frame, p.now, p.matched = true, f, b.clock.Now(), 0
	f.born = p.now.Sub(b.started)
	run := Run{Topic: []byte(topic), End: len(record), Count: 1, Keyed: true}
	b.publishRun(context.Background(), p, &run)
	switch {
	case run.Accepted > 0:
		b.counters.matched.Add(uint64(p.matched))
	case errors.Is(run.Err, ErrMemory):
		b.dropOwn(DropMemory)
	default:
		b.dropOwn(DropRefused) // a full group refuses it like any other message, and there is no publisher to tell
	}
	f.release()
}

// dropOwn counts a message of the broker's own that somebody was to have and nobody gets.
func (b *Broker) dropOwn(why DropReason) {
	b.counters.matched.Add(1)
	b.counters.drop(why, 1)
}
