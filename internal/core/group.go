package core

import "time"

// group is a consumer group: its members share what is queued. It exists from its first member's joining until it has
// had no member for GroupLinger. Everything is guarded by the intake's mu, which also makes its counters agree with each other at every moment.
//
// A message is in exactly one place: in a lane, waiting for its key, waiting for another attempt, or in flight.
type group struct {
	intake // what waits; messages in flight are not counted

	broker   *Broker
	name     string
	settings GroupSettings
	created  time.Time

	lanes      map[string]*lane // by their names
	backlog    []*lane          // those in which messages are ready, in no order
	aside      int              // lanes without members for which messages may wait outside the lanes
	members    int
	linger     time.Time            // when the group goes; zero while it has members
	order      uint64               // place of the last message accepted
	mixed      uint64               // what has come up to here may also be for lanes that came later
	deliveries uint64               // batches given to members
	keys       map[string]*keyState // the keys of all messages in the group
	mostKeys   int                  // that the map has had
	delayed    parcelHeap           // waiting for another attempt, by when
	deadline   parcelHeap           // in flight with a deadline, by when
	spare      []*parcel

	// The group's one timer.
	armed time.Time // when it fires; zero: not armed
	stop  func() bool

	inFlight int
	draining bool      // members end as soon as there cannot be anything for them any more
	cutOff   time.Time // when those will be that are left; zero: never
	restless bool      // counted as such by the broker, while it drains
	counters groupCounters
	outMeter meter

	letters []deadLetter // to be published once mu is free
	posting int          // how many publish dead letters right now
	burst   uint64       // id of the publication that all letters are parts of
}

// groupCounters only grow.
type groupCounters struct {
	accepted    uint64
	delivered   uint64 // redeliveries included
	acked       uint64
	dead        uint64
	dropped     uint64
	redelivered uint64
	expired     uint64 // deliveries whose deadline passed
	ineffective uint64 // acks, nacks and extensions that named nothing in flight
}

func (c *groupCounters) add(o *groupCounters) {
	c.accepted += o.accepted
	c.delivered += o.delivered
	c.acked += o.acked
	c.dead += o.dead
	c.dropped += o.dropped
	c.redelivered += o.redelivered
	c.expired += o.expired
	c.ineffective += o.ineffective
}

func newGroup(b *Broker, name string, s GroupSettings) *group {
	return &group{
		intake: intake{
			encoding:      b.encoding,
			overflow:      s.Overflow,
			capacity:      int64(s.Capacity),
			capacityBytes: b.options.GroupCapacityBytes,
		},
		broker:   b,
		name:     name,
		settings: s,
		created:  b.clock.Now(),
		burst:    b.publications.Add(1),
		lanes:    make(map[string]*lane),
		keys:     make(map[string]*keyState),
		delayed:  parcelHeap{less: byDue},
		deadline: parcelHeap{less: byDeadline},
	}
}

// laneFor returns the lane of these patterns and this permission, and whether it is new.
func (g *group) laneFor(patterns *PatternSet, may *Permission) (l *lane, isNew bool) {
	name := laneName(patterns, may)
	if l := g.lanes[name]; l != nil {
		return l, false
	}
	l = &lane{
		group:    g,
		patterns: patterns,
		may:      may,
		name:     name,
		returned: parcelHeap{less: byOrder},
		suspects: parcelHeap{less: byOrder},
	}
	g.lanes[name] = l
	g.broker.lanes.Add(1)
	g.broker.memory.take(unusual(patterns)) // the lane outlives the member, for which there was room
	return l, true
}

// knows reports whether there is a lane of these patterns and this permission.
func (g *group) knows(patterns *PatternSet, may *Permission) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lanes[laneName(patterns, may)] != nil
}

func (g *group) waiting() int64 {
	n, _ := g.fill.load()
	return n
}
