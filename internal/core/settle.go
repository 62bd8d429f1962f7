package core

import (
	"container/heap"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"time"
)

// SequenceRange is a run of delivery numbers, both ends included.
type SequenceRange struct{ First, Last uint64 }

// NackAction says what becomes of a delivery that is given back.
type NackAction int

// The actions.
const (
	// NackRetry: it failed. Counts an attempt; delivered again after a while.
	NackRetry NackAction = iota
	// NackRelease: it was not started. Counts nothing; delivered again at once.
	NackRelease
	// NackReject: it can never succeed. A dead letter now.
	NackReject
)

// Nack describes how deliveries are given back.
type Nack struct {
	Action NackAction
	// Delay is how long NackRetry waits; nil: exponential backoff from 1 s to 30 s with jitter.
	Delay *time.Duration
	// Reason goes into the dead letter of NackReject; it may be cut.
	Reason string
}

// The backoff of NackRetry: doubled with every attempt, and spread by a quarter to both sides.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

func backoff(attempt int) time.Duration {
	d := maxBackoff
	if attempt < 6 {
		d = min(maxBackoff, minBackoff<<(attempt-1))
	}
	return d*3/4 + rand.N(d/2)
}

// Ack says that deliveries are done. Numbers that are not in flight have no effect but to be counted.
func (m *Member) Ack(ranges ...SequenceRange) { m.AckEach(slices.Values(ranges)) }

// AckEach is Ack for ranges that are read one by one, under the group's lock.
func (m *Member) AckEach(ranges iter.Seq[SequenceRange]) {
	now := m.broker.clock.Now()
	m.settle(ranges, func(p *parcel) {
		m.lastAck = now
		m.group.doneLocked(p)
	}, false)
}

// Nack gives deliveries back.
func (m *Member) Nack(n Nack, ranges ...SequenceRange) { m.NackEach(n, slices.Values(ranges)) }

// NackEach is Nack for ranges that are read one by one, under the group's lock.
func (m *Member) NackEach(n Nack, ranges iter.Seq[SequenceRange]) {
	g := m.group
	m.settle(ranges, func(p *parcel) {
		switch n.Action {
		case NackRelease:
			g.giveBackLocked(p, giveBack{})
		case NackReject:
			g.buryLocked(p, "rejected", n.Reason)
		default:
			delay := backoff(p.attempt)
			if n.Delay != nil {
				delay = *n.Delay
			}
			g.giveBackLocked(p, giveBack{charge: true, delay: delay, reason: n.Reason})
		}
	}, n.Action != NackReject)
}

// Extend restarts the ack deadline of deliveries; d counts from now, 0 means the group's ack deadline. Without acks there is none, and it has no effect.
func (m *Member) Extend(d time.Duration, ranges ...SequenceRange) {
	m.ExtendEach(d, slices.Values(ranges))
}

// ExtendEach is Extend for ranges that are read one by one, under the group's lock.
func (m *Member) ExtendEach(d time.Duration, ranges iter.Seq[SequenceRange]) {
	g := m.group
	g.mu.Lock()
	defer g.unlock()
	switch {
	case g.settings.Ack == AckNone:
		d = 0 // it is the stream that is waited for, see SendTimeout
	case d == 0:
		d = *g.settings.AckDeadline
	}
	m.setLate(false)
	defer m.freedLocked()
	defer func() { m.heard++ }()
	for r := range g.inTurns(ranges) {
		if !m.extendLocked(r.First, r.Last, d) {
			g.counters.ineffective++
		}
	}
}

// extendLocked sets the deadlines of everything from first to last that is in flight at the member. Parcels that lie across an end are
// split. False: nothing is.
func (m *Member) extendLocked(first, last uint64, d time.Duration) (found bool) {
	for i := m.searchLocked(first); i < len(m.flights) && m.flights[i].first <= last; i++ {
		p := m.flights[i]
		if p.first < first {
			m.keepHeadLocked(i, int(first-p.first))
			continue
		}
		if p.last() > last {
			m.keepHeadLocked(i, int(last-p.first)+1)
			p = m.flights[i]
		}
		m.group.setDeadlineLocked(p, d)
		p.written = 0
		found = true
	}
	return found
}

// searchLocked returns where what is in flight at the member begins that is not before first.
func (m *Member) searchLocked(first uint64) int {
	return sort.Search(len(m.flights), func(i int) bool { return m.flights[i].last() >= first })
}

// rangesAtOnce is how many ranges of a request are dealt with before others get their turn at the group.
const rangesAtOnce = 128

// inTurns hands on ranges, and gives others a turn at the group in the middle of a long request.
func (g *group) inTurns(ranges iter.Seq[SequenceRange]) iter.Seq[SequenceRange] {
	return func(yield func(SequenceRange) bool) {
		n := 0
		for r := range ranges {
			if n > 0 && n%rangesAtOnce == 0 {
				g.unlock()
				runtime.Gosched()
				g.mu.Lock()
			}
			if n++; !yield(r) {
				return
			}
		}
	}
}

// settle calls f, which may give it back, for what is in flight of each range, and wakes whoever may go on.
func (m *Member) settle(ranges iter.Seq[SequenceRange], f func(p *parcel), mayGiveBack bool) {
	g := m.group
	g.mu.Lock()
	m.setLate(false)
	for r := range g.inTurns(ranges) {
		before := m.inFlight
		m.eachLocked(r.First, r.Last, f)
		if m.inFlight == before {
			g.counters.ineffective++
		}
	}
	m.heard++
	m.freedLocked()
	if mayGiveBack {
		m.lane.seekHelp(fewLooks)
	}
	g.unlock()
	m.broker.forgetIfEnded(m)
}

// freedLocked lets the member go on after deliveries were settled.
func (m *Member) freedLocked() {
	if m.ended {
		return
	}
	if m.inFlight == 0 {
		m.alone = false
	}
	m.finishLocked()
	if m.isFree() && !m.late {
		m.lane.help(fewLooks)
	}
	m.wakeForMore()
}

// eachLocked removes everything from first to last from what is in flight at the member, and calls f with it, in order. Parcels
// that lie across an end are split.
func (m *Member) eachLocked(first, last uint64, f func(p *parcel)) {
	i := m.searchLocked(first)
	var found []*parcel
	from := i
	for ; i < len(m.flights) && m.flights[i].first <= last; i++ {
		p := m.flights[i]
		if p.first < first {
			m.keepHeadLocked(i, int(first-p.first))
			from = i + 1
			continue
		}
		if p.last() > last {
			head := m.group.split(p, int(last-p.first)+1)
			head.deadline = time.Time{} // it is p that is in the heap
			found = append(found, head)
			break
		}
		m.group.stopDeadlineLocked(p)
		found = append(found, p)
	}
	if from == 0 {
		// Most are settled in the order in which they were delivered; the others need not move up.
		clear(m.flights[:i])
		m.flights = m.flights[i:]
		if len(m.flights) == 0 {
			m.flights = nil // however many there were
		}
	} else {
		m.flights = slices.Delete(m.flights, from, i)
	}
	for _, p := range found {
		f(p)
	}
}

// keepHeadLocked splits the first n messages off the i-th parcel in flight; they stay in flight, before the rest.
func (m *Member) keepHeadLocked(i, n int) {
	g := m.group
	head := g.split(m.flights[i], n)
	m.flights = slices.Insert(m.flights, i, head)
	if !head.deadline.IsZero() {
		heap.Push(&g.deadline, head)
	}
}

// landLocked takes a parcel out of flight.
func (g *group) landLocked(p *parcel) {
	p.member.inFlight -= p.n
	g.inFlight -= p.n
	p.deadline, p.written = time.Time{}, 0
	if p.key != nil {
		p.key.land(p)
	}
}

// doneLocked ends a parcel's way: its member has acknowledged it or, without acks, it is written.
func (g *group) doneLocked(p *parcel) {
	p.member.acked += uint64(p.n)
	g.landLocked(p)
	g.counters.acked += uint64(p.n)
	g.leaveLocked(p)
}

// leaveLocked lets go of a parcel that has landed for good.
func (g *group) leaveLocked(p *parcel) {
	if p.key != nil {
		g.settleKeyLocked(p.key)
	}
	g.discard(p)
}

// giveBack says how a parcel is given back.
type giveBack struct {
	charge bool // counts as an attempt
	crash  bool // it was in flight when its member's stream ended
	delay  time.Duration
	reason string
}

// giveBackLocked queues a parcel in flight again, at its old place, or buries it when it has had all its attempts.
func (g *group) giveBackLocked(p *parcel, how giveBack) {
	if how.charge && p.attempt >= g.settings.MaxAttempts {
		g.buryLocked(p, "max_attempts", how.reason)
		return
	}
	g.landLocked(p)
	if !how.charge {
		p.attempt--
	}
	if how.crash {
		p.crashes++
	}
	p.compactAlone()
	if how.delay > 0 {
		p.due = g.broker.clock.Now().Add(how.delay)
	}
	g.fill.add(int64(p.n), p.size())
	if how.delay > 0 {
		heap.Push(&g.delayed, p)
		g.armLocked(p.due)
	}
	switch {
	case p.key != nil:
		if how.charge && p.key.flights.len > 0 {
			p.key.failedAt = p.member.sequence
		}
		p.key.putBack(p)
		g.settleKeyLocked(p.key)
	case how.delay <= 0:
		p.lane.giveBack(p)
	}
}
