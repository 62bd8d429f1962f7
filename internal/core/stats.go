package core

import (
	"sync/atomic"
	"time"
)

// counters only grow. They are kept apart from the objects they count, so that no total falls when one of those goes.
type counters struct {
	published, publishedBytes atomic.Uint64
	delivered, deliveredBytes atomic.Uint64
	unrouted                  atomic.Uint64
	refused                   atomic.Uint64
	dropped                   atomic.Uint64
	lost                      atomic.Uint64
	evictions                 atomic.Uint64
}

// Stats is a snapshot of the broker's totals. Counters count since the broker's start and never fall; their counterparts
// are read one after the other, so that under load they need not match to the message.
type Stats struct {
	Time    time.Time
	Started time.Time
	RunID   string
	Version string // of the program that runs the broker; core leaves it empty

	Subscriptions  int
	QueuedMessages int64
	Memory         int64 // bytes held, shared ones once, bookkeeping included
	MaxMemory      int64

	Published, PublishedBytes uint64 // messages accepted, and their encoded size
	Delivered, DeliveredBytes uint64 // messages written to subscribers
	Unrouted                  uint64 // accepted messages without a receiver
	Refused                   uint64 // messages refused, for whatever reason
	Dropped                   uint64 // messages dropped by overflow policies
	Lost                      uint64 // messages dropped with the queue of a subscription that ended
	Evictions                 uint64
}

// Stats returns a snapshot. Its cost grows with the number of subscriptions.
func (b *Broker) Stats() Stats {
	c := &b.counters
	st := Stats{
		Time:           b.clock.Now(),
		Started:        b.started,
		RunID:          b.runID,
		Memory:         b.memory.used.Load(),
		MaxMemory:      b.memory.limit,
		Published:      c.published.Load(),
		PublishedBytes: c.publishedBytes.Load(),
		Delivered:      c.delivered.Load(),
		DeliveredBytes: c.deliveredBytes.Load(),
		Unrouted:       c.unrouted.Load(),
		Refused:        c.refused.Load(),
		Dropped:        c.dropped.Load(),
		Lost:           c.lost.Load(),
		Evictions:      c.evictions.Load(),
	}
	for _, s := range b.snapshot() {
		queued, _ := s.Queued()
		st.Subscriptions++
		st.QueuedMessages += queued
	}
	return st
}
