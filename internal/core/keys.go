package core

import (
	"maps"
	"sort"
)

// keyState is a key with messages in the group. Its messages are either in flight, all at one member, or wait in
// order; only the first of them may be in a lane, and only while none is in flight: that one stands for the key there.
// Guarded by the group's mu.
type keyState struct {
	name     string
	holder   *Member       // whoever has messages of the key in flight
	flights  ring[*parcel] // these, by delivery number
	waiting  ring[*parcel] // behind those in flight, or behind the one in a lane
	inLane   bool          // the key's first message is in a lane, or waits there for another attempt
	held     bool          // the holder has been told that more is waiting
	newest   uint64        // order of the newest message that was given since the key was last idle or changed hands
	rewound  bool          // one came back while others were in flight: until none is, nothing newer is given
	failedAt uint64        // the holder's last delivery number when one failed while others were in flight; 0: none has, since the key was last idle
	lane     *lane         // of the last message that came
}

// addKeyedLocked queues records some of which have keys.
func (g *group) addKeyedLocked(lanes []*lane, from *publication, start, end uint32) {
	f := from.frame
	plain, n := start, 0 // records without a key, not queued yet
	for start < end {
		stop := start + uint32(g.encoding.Len(f.data[start:end]))
		key := g.encoding.Key(f.data[start:stop])
		if len(key) == 0 {
			n++
			start = stop
			continue
		}
		g.addLocked(lanes, from, plain, start, n)
		g.addOneKeyedLocked(lanes, from, start, stop, key)
		plain, n = stop, 0
		start = stop
	}
	g.addLocked(lanes, from, plain, end, n)
}

func (g *group) addOneKeyedLocked(lanes []*lane, from *publication, start, end uint32, key []byte) {
	st := g.keys[string(key)]
	if st == nil {
		st = &keyState{name: string(key)}
		g.keys[st.name] = st
		g.mostKeys = max(g.mostKeys, len(g.keys))
		from.room -= keyOverhead + int64(len(key))
	}
	st.lane = g.laneOfKeyLocked(st, lanes)
	g.order++
	p := g.newParcel()
	p.frame, p.start, p.end, p.n = from.frame, start, end, 1
	p.lane, p.order, p.key, p.queued = st.lane, g.order, st, from.now
	p.shared = len(lanes) > 1
	p.frame.retain()
	if st.idle() {
		st.inLane = true
		p.lane.addParcel(p)
		p.lane.seekHelp(fewLooks)
		return
	}
	p.compactAlone()
	p.behind = true
	st.waiting.pushBack(p)
	p.lane.setAside(len(p.lane.members) == 0)
	st.offer()
}

// laneOfKeyLocked keeps a key to one lane while it has messages and the lane members.
func (g *group) laneOfKeyLocked(st *keyState, lanes []*lane) *lane {
	for _, l := range lanes {
		if l == st.lane && len(l.members) > 0 {
			return l
		}
	}
	l, _ := g.chooseLocked(lanes, 1)
	return l
}

// idle reports whether the key has no message in the group.
func (st *keyState) idle() bool { return st.flights.len == 0 && !st.inLane && st.waiting.len == 0 }

// next returns the first waiting message if the holder may have it now. One that is late gets no more of the key: when what it has
// is back, another may have all of it. Where one message came back, the holder may be about to give back those behind it that it has; what it has never had must not
// overtake them, and neither must what it had and has given back, where one before it has failed again.
func (st *keyState) next(m *Member) *parcel {
	if st.holder != m || st.waiting.len == 0 || m.late {
		return nil
	}
	p := *st.waiting.front()
	if p.lane != m.lane || !p.due.IsZero() || st.rewound && p.order > st.newest || st.mayComeBack(p) {
		return nil
	}
	return p
}

// mayComeBack reports whether the holder may be about to give back messages before p: those that it had when one failed that was before them.
func (st *keyState) mayComeBack(p *parcel) bool {
	if st.failedAt == 0 {
		return false
	}
	for i := range st.flights.len {
		q := *st.flights.at(i)
		if q.first > st.failedAt {
			break
		}
		if q.order < p.order {
			return true
		}
	}
	return false
}

// pop removes the first of the waiting messages.
func (st *keyState) pop() *parcel {
	p := st.waiting.popFront()
	p.behind = false
	return p
}

// offer tells the holder that more of the key is waiting for it.
func (st *keyState) offer() {
	m := st.holder
	if m == nil || st.held || st.next(m) == nil {
		return
	}
	st.held = true
	m.held.pushBack(st)
	if m.parked && m.mayTake() {
		m.unpark()
	}
}

// give notes that p is in flight at m.
func (st *keyState) give(m *Member, p *parcel) {
	st.inLane = false
	st.holder = m
	st.flights.pushBack(p)
	st.newest = max(st.newest, p.order)
	st.offer()
}

// land notes that p is no longer in flight.
func (st *keyState) land(p *parcel) {
	st.flights.remove(sort.Search(st.flights.len, func(i int) bool { return (*st.flights.at(i)).first >= p.first }))
}

// putBack inserts a message among those that wait.
func (st *keyState) putBack(p *parcel) {
	i := 0
	for i < st.waiting.len && (*st.waiting.at(i)).order < p.order {
		i++
	}
	p.behind = true
	st.waiting.insert(i, p)
	st.rewound = st.rewound || st.flights.len > 0 && p.order < st.newest
}

// settleKeyLocked brings a key up to date after some of its messages were settled or given back: when none is in flight, the next goes to
// its lane; when there is none, the key is forgotten.
func (g *group) settleKeyLocked(st *keyState) {
	if st.flights.len > 0 {
		st.offer()
		return
	}
	st.holder, st.held = nil, false
	st.newest, st.rewound, st.failedAt = 0, false, 0
	if st.inLane {
		return
	}
	if st.waiting.len == 0 {
		g.forgetKeyLocked(st)
		return
	}
	st.inLane = true
	if p := st.pop(); p.due.IsZero() {
		p.lane.giveBack(p)
		p.lane.seekHelp(fewLooks)
	}
}

// usualKeys is for how many keys a group keeps room when it has few: a Go map never shrinks.
const usualKeys = 1024

// forgetKeyLocked takes a key without messages off the books.
func (g *group) forgetKeyLocked(st *keyState) {
	delete(g.keys, st.name)
	g.broker.memory.free(keyOverhead + int64(len(st.name)))
	if n := len(g.keys); g.mostKeys > usualKeys && n <= g.mostKeys/8 {
		smaller := make(map[string]*keyState, n)
		maps.Copy(smaller, g.keys)
		g.keys, g.mostKeys = smaller, n
	}
}

// forgetKeyedLocked brings a key up to date after its message in a lane was dropped.
func (g *group) forgetKeyedLocked(p *parcel) {
	if st := p.key; st != nil {
		st.inLane = false
		g.settleKeyLocked(st)
	}
}
