package core

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"time"
)

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

// lane is the members of a group that have the same patterns and may receive the same topics, and the messages for them. Guarded by
// the group's mu.
type lane struct {
	group    *group
	patterns *PatternSet
	may      *Permission // which topics they may receive
	name     string      // patterns and permission, as a key

	members []*Member
	linger  time.Time // when a lane without members goes; zero while it has some

	fresh    ring[*parcel] // never delivered, in order
	returned parcelHeap    // given back, by order: they go first
	suspects parcelHeap    // given back by crash after crash, by order: they go first and alone
	ready    int           // messages in these three
	shared   int           // of these, messages that may be for other lanes too
	place    int           // in the group's backlog
	aside    bool          // has no members, and messages may wait for it outside: for their key, or for another attempt

	gone    bool    // expired: takes no more messages
	lost    int     // messages that went with it
	parked  int     // members that wait to be roused
	late    int     // members that have let a deadline pass and said nothing since
	prompt  int     // members that are neither late nor leave
	drainer *Member // takes nothing more until it has nothing in flight and can take a suspect
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
	g.broker.memory.used.Add(unusual(patterns)) // the lane outlives the member, for which there was room
	return l, true
}

// knows reports whether there is a lane of these patterns and this permission.
func (g *group) knows(patterns *PatternSet, may *Permission) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lanes[laneName(patterns, may)] != nil
}

// laneName is the same for members with the same patterns, in whatever order. No pattern holds a line feed.
func laneName(patterns *PatternSet, may *Permission) string {
	list := slices.Clone(patterns.Strings())
	slices.Sort(list)
	list = slices.Compact(list)
	name := strings.Join(list, "\n")
	if may != nil {
		name += "\n\n" + may.key
	}
	return name
}

// rights implements interest.
func (l *lane) rights() *Permission { return l.may }

// matches reports whether messages on a topic are for the lane.
func (l *lane) matches(topic string) bool { return l.patterns.Match(topic) && l.may.Match(topic) }

// addTo implements interest: all lanes of one group are one receiver.
func (l *lane) addTo(receivers []receiver, groups groupRoutes) []receiver {
	if r := groups[l.group]; r != nil {
		r.lanes = append(r.lanes, l)
		return receivers
	}
	r := &groupRoute{group: l.group, lanes: []*lane{l}}
	groups[l.group] = r
	return append(receivers, r)
}

// groupRoutes finds a group among the receivers of a topic.
type groupRoutes map[*group]*groupRoute

// groupRoute is a group as the receiver of one topic, through the lanes whose patterns match it.
type groupRoute struct {
	group *group
	lanes []*lane
}

// box implements receiver.
func (r *groupRoute) box() *intake { return &r.group.intake }

// refusal implements refuser.
func (r *groupRoute) refusal() error {
	return fmt.Errorf("%w: group %s holds %d messages", ErrGroupFull, quoteShort(r.group.name), r.group.waiting())
}

func (g *group) waiting() int64 {
	n, _ := g.fill.load()
	return n
}

// commit implements receiver.
func (r *groupRoute) commit(p *publication, run *Run, start, end uint32, n int, reserved bool) fate {
	g := r.group
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.countRestlessLocked()
	// A lane may have gone since the route was looked up.
	r.lanes = slices.DeleteFunc(r.lanes, func(l *lane) bool { return l.gone })
	if g.ended || len(r.lanes) == 0 {
		if reserved {
			g.takenLocked(int64(n), int64(end-start))
		}
		return missed
	}
	g.counters.accepted += uint64(n)
	if !reserved {
		if start, end, n = g.makeRoomLocked(p.frame, start, end, n); n == 0 {
			return discarded
		}
	}
	g.noteLocked(p, n, int64(end-start))
	p.room -= int64(n) * parcelOverhead
	if g.waiting() > g.capacity/2 {
		p.crowded = true
	}
	if run.Keyed {
		g.addKeyedLocked(r.lanes, p, start, end)
	} else {
		g.addLocked(r.lanes, p, start, end, n)
	}
	return taken
}

// makeRoomLocked applies a dropping overflow policy: it returns which part of frame.data[start:end] is to be queued, for
// which it has reserved room.
func (g *group) makeRoomLocked(f *frame, start, end uint32, n int) (uint32, uint32, int) {
	if g.overflow == OverflowDropNewest {
		used, usedBytes := g.fill.load()
		k, size := measure(g.encoding, f.data[start:end], min(n, int(max(0, g.capacity-used))), g.capacityBytes-usedBytes)
		if k > 0 && !g.reserve(false, int64(k), size) {
			k, size = 0, 0
		}
		g.countDroppedLocked(DropNewest, n-k)
		return start, start + uint32(size), k
	}
	for n > 1 && (n > int(g.capacity) || int64(end-start) > g.capacityBytes) {
		start += uint32(g.encoding.Len(f.data[start:end]))
		n--
		g.countDroppedLocked(DropOldest, 1)
	}
	for !g.reserve(false, int64(n), int64(end-start)) {
		if !g.dropOldestLocked(n) && !g.dropAsideLocked() {
			// What fills the queue is reserved by others.
			g.fill.add(int64(n), int64(end-start))
			break
		}
	}
	return start, end, n
}

// dropOldestLocked drops the oldest messages that wait in a lane, one parcel at most and no more than is needed for n
// others. False: none wait there.
func (g *group) dropOldestLocked(n int) bool {
	var oldest *parcel
	for _, l := range g.lanes {
		if p := l.oldest(); p != nil && (oldest == nil || p.order < oldest.order) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	l := oldest.lane
	g.loseLocked(DropOldest, l.takeOut(oldest, max(1, int(g.waiting())+n-int(g.capacity))))
	l.undrainIfDone()
	l.help(fewLooks)
	return true
}

// dropAsideLocked drops a message that waits outside the lanes, for its key or for another attempt: of a few the oldest. False: none
// does.
func (g *group) dropAsideLocked() bool {
	const looks = 8
	oldest := g.delayed.front()
	if oldest != nil && oldest.behind {
		oldest = *oldest.key.waiting.front()
	}
	seen := 0
	for _, st := range g.keys {
		if st.waiting.len > 0 && (oldest == nil || (*st.waiting.front()).order < oldest.order) {
			oldest = *st.waiting.front()
		}
		if seen++; seen >= looks && oldest != nil {
			break
		}
	}
	switch {
	case oldest == nil:
		return false
	case oldest.n > 1:
		g.loseLocked(DropOldest, g.split(oldest, 1))
		return true
	case oldest.spot >= 0:
		heap.Remove(&g.delayed, oldest.spot)
	}
	if !oldest.behind {
		g.loseLocked(DropOldest, oldest)
		return true
	}
	st := oldest.key
	st.waiting.popFront()
	g.loseLocked(DropOldest, oldest)
	st.offer()
	return true
}

func (g *group) countDroppedLocked(why DropReason, n int) {
	g.counters.dropped += uint64(n)
	g.broker.counters.drop(why, n)
}

// addLocked queues n messages without a key, each in one of the lanes.
func (g *group) addLocked(lanes []*lane, from *publication, start, end uint32, n int) {
	for n > 0 {
		l, k := g.chooseLocked(lanes, n)
		stop := end
		if k < n {
			_, size := measure(g.encoding, from.frame.data[start:end], k, int64(end-start))
			stop = start + uint32(size)
		}
		l.add(from, start, stop, k, len(lanes) > 1)
		l.seekHelp(fewLooks) // what came before may be for others
		start, n = stop, n-k
	}
}

// chooseLocked picks the lane for the next of n messages, and says how many it is good for: the one with the most free credit, and
// where none has any the one with the shortest queue. Lanes whose members are all late come after others, and those without members last.
func (g *group) chooseLocked(lanes []*lane, n int) (best *lane, k int) {
	if len(lanes) == 1 {
		return lanes[0], n
	}
	var free int
	for _, l := range lanes {
		credit := l.credit() - l.ready
		if best == nil || l.before(best, credit, free) {
			best, free = l, credit
		}
	}
	if free > 0 {
		return best, min(n, free)
	}
	return best, (n + len(lanes) - 1) / len(lanes)
}

// before reports whether a lane with that much free credit is a better place than another.
func (l *lane) before(other *lane, credit, otherCredit int) bool {
	if credit > 0 || otherCredit > 0 {
		return credit > otherCredit
	}
	if mine, others := l.standing(), other.standing(); mine != others {
		return mine > others
	}
	return l.ready < other.ready
}

// standing is 2 for a lane with members that go on with their work, 1 where all are late or leave, and 0 where there are none.
func (l *lane) standing() int {
	switch {
	case len(l.members) == 0:
		return 0
	case l.prompt > 0:
		return 2
	}
	return 1
}
