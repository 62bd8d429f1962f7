package core

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// counters only grow. They are kept apart from the objects they count, so that no total falls when one of those goes.
type counters struct {
	published, publishedBytes atomic.Uint64
	matched                   atomic.Uint64 // copies for broadcast subscriptions
	delivered                 atomic.Uint64 // to broadcast subscriptions
	deliveredGroup            atomic.Uint64 // to members of groups
	deliveredBytes            atomic.Uint64
	unrouted                  atomic.Uint64
	refused                   [refuseReasons]atomic.Uint64
	dropped                   [dropReasons]atomic.Uint64
	opened                    atomic.Uint64 // subscriptions and members
	ended                     [len(endWords)]atomic.Uint64
	evicted                   [evictReasons]atomic.Uint64
	deadLetters               atomic.Uint64
}

func (c *counters) drop(why DropReason, n int) { c.dropped[why].Add(uint64(n)) }

func (c *counters) deliveredAll() uint64 { return c.delivered.Load() + c.deliveredGroup.Load() }

func (c *counters) evictions() (n uint64) {
	for i := range c.evicted {
		n += c.evicted[i].Load()
	}
	return n
}

// droppedAll sums over the reasons.
func (c *counters) droppedAll() (n uint64) {
	for i := range c.dropped {
		n += c.dropped[i].Load()
	}
	return n
}

// lost is the part of droppedAll that went with the queue of a subscription that ended.
func (c *counters) lost() (n uint64) {
	for i := dropEnded; i < dropReasons; i++ {
		n += c.dropped[i].Load()
	}
	return n
}

func (c *counters) refusedAll() (n uint64) {
	for i := range c.refused {
		n += c.refused[i].Load()
	}
	return n
}

// Stats is a snapshot of the broker's totals. Counters count since the broker's start and never fall; their counterparts
// are read one after the other, so that under load they need not match to the message.
type Stats struct {
	Time    time.Time
	Started time.Time
	RunID   string
	Version string // of the program that runs the broker; core leaves it empty

	Subscriptions  int
	Groups         int
	Topics         int // of clients, followed now
	Connections    int // of whoever serves the broker; core leaves it 0
	QueuedMessages int64
	Memory         int64 // bytes held, shared ones once, bookkeeping included
	MaxMemory      int64

	Published, PublishedBytes uint64 // messages accepted, and their encoded size
	Delivered, DeliveredBytes uint64 // messages written to subscribers
	Unrouted                  uint64 // accepted messages that matched no subscription and no group
	Refused                   uint64 // messages refused, for whatever reason
	Dropped                   uint64 // messages dropped by overflow policies
	Lost                      uint64 // messages dropped with the queue of a subscription that ended
	Evictions                 uint64
	DeadLetters               uint64 // messages of groups that had all their attempts, or were rejected
}

// MemoryUsed returns Stats.Memory alone, at no cost.
func (b *Broker) MemoryUsed() int64 { return b.memory.used.Load() }

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
		Delivered:      c.deliveredAll(),
		DeliveredBytes: c.deliveredBytes.Load(),
		Unrouted:       c.unrouted.Load(),
		Refused:        c.refusedAll(),
		Lost:           c.lost(),
		Evictions:      c.evictions(),
		DeadLetters:    c.deadLetters.Load(),
	}
	for i := range dropEnded {
		st.Dropped += c.dropped[i].Load()
	}
	for _, consumer := range b.consumers() {
		st.Subscriptions++
		if s, ok := consumer.(*Subscription); ok {
			queued, _ := s.Queued()
			st.QueuedMessages += queued
		}
	}
	st.Topics = b.router.followed()
	for _, g := range b.Groups() {
		st.Groups++
		st.QueuedMessages += int64(g.Pending)
	}
	return st
}

// GroupStats is a snapshot of a consumer group. Its numbers agree with each other:
//
//	Accepted = Acked + DeadLetters + Dropped + Pending + InFlight
type GroupStats struct {
	Name     string
	Settings GroupSettings
	Created  time.Time
	Members  int

	// Oldest is when the message came that has waited longest in a lane; zero: none waits.
	Oldest time.Time
	Out    Rates // deliveries, redeliveries included

	Pending  int // waiting, those between two attempts included
	InFlight int

	Accepted    uint64 // messages queued for the group
	Delivered   uint64 // redeliveries included
	Acked       uint64 // done: acknowledged or, without acks, written
	DeadLetters uint64 // had all their attempts, or were rejected
	Dropped     uint64 // by the overflow policy, or with their lane or the group
	Redelivered uint64 // deliveries that were not the first
	Expired     uint64 // deliveries not acknowledged in time
	Ineffective uint64 // acks, nacks and extensions that named nothing in flight
}

// Groups returns a snapshot of every group, in no particular order.
func (b *Broker) Groups() []GroupStats {
	groups := b.allGroups()
	stats := make([]GroupStats, len(groups))
	for i, g := range groups {
		stats[i] = g.stats(nil)
	}
	return stats
}

func (b *Broker) allGroups() []*group {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allGroupsLocked()
}

func (b *Broker) allGroupsLocked() []*group { return slices.Collect(maps.Values(b.groups)) }

// stats describes the group; without a sampler its rates are left out.
func (g *group) stats(s *sampler) GroupStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.statsLocked(s)
}

func (g *group) statsLocked(s *sampler) GroupStats {
	c := &g.counters
	st := GroupStats{
		Name:        g.name,
		Settings:    g.settings,
		Created:     g.created,
		Members:     g.members,
		Pending:     int(c.accepted-c.acked-c.dead-c.dropped) - g.inFlight,
		InFlight:    g.inFlight,
		Accepted:    c.accepted,
		Delivered:   c.delivered,
		Acked:       c.acked,
		DeadLetters: c.dead,
		Dropped:     c.dropped,
		Redelivered: c.redelivered,
		Expired:     c.expired,
		Ineffective: c.ineffective,
	}
	for _, l := range g.lanes {
		if p := l.oldest(); p != nil && (st.Oldest.IsZero() || p.queued.Before(st.Oldest)) {
			st.Oldest = p.queued
		}
	}
	if s != nil {
		st.Out = s.rates(&g.outMeter)
	}
	return st
}
