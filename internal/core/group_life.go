package core

import (
	"container/heap"
	"slices"
	"time"
)

// joinLocked makes m a member.
func (g *group) joinLocked(m *Member) (_ *lane, isNew bool) {
	l, isNew := g.laneFor(m.patterns)
	m.group, m.lane = g, l
	l.members = append(l.members, m)
	l.linger = time.Time{}
	g.members++
	g.linger = time.Time{}
	if len(l.members) == 1 {
		for _, other := range g.lanes {
			if len(other.members) == 0 {
				g.rehomeLocked(other)
			}
		}
	}
	return l, isNew
}

// leave takes m off the lane's list.
func (l *lane) leave(m *Member) {
	if i := slices.Index(l.members, m); i >= 0 {
		l.members = slices.Delete(l.members, i, i+1)
	}
	if l.drainer == m {
		l.drainer = nil
	}
}

// memberGoneLocked starts the linger of what has lost its last member, and finds other takers for a lane's messages.
func (g *group) memberGoneLocked(l *lane) {
	g.members--
	linger := g.broker.clock.Now().Add(g.broker.options.GroupLinger)
	if g.members == 0 {
		g.linger = linger
	}
	if len(l.members) > 0 {
		l.rouse()
		return
	}
	l.linger = linger
	g.armLocked(linger)
	g.rehomeLocked(l)
}

// rehomeLocked moves the messages of a lane without members to lanes that have some and whose patterns match.
func (g *group) rehomeLocked(l *lane) {
	var takers []*lane
	for _, other := range g.lanes {
		if other != l && len(other.members) > 0 {
			takers = append(takers, other)
		}
	}
	if len(takers) == 0 {
		return
	}
	taker := func(record []byte) *lane {
		topic := string(g.encoding.Topic(record))
		for _, t := range takers {
			if t.patterns.Match(topic) {
				return t
			}
		}
		return l
	}
	for _, p := range l.emptyOut() {
		g.distributeLocked(p, taker)
	}
	for _, p := range g.delayed.list {
		p.lane = g.moved(p, l, taker)
	}
	for _, st := range g.keys {
		for i := range st.waiting.len {
			p := *st.waiting.at(i)
			p.lane = g.moved(p, l, taker)
		}
		st.offer()
	}
}

// moved returns the lane a parcel belongs to after lane l has lost its members. A parcel that waits outside a lane may hold several
// messages, which then stay together: the first decides.
func (g *group) moved(p *parcel, l *lane, taker func([]byte) *lane) *lane {
	if p.lane != l {
		return p.lane
	}
	return taker(p.data()[:g.encoding.Len(p.data())])
}

// distributeLocked queues the messages of a parcel where taker says, neighbours together.
func (g *group) distributeLocked(p *parcel, taker func(record []byte) *lane) {
	for {
		data := p.data()
		length := g.encoding.Len(data)
		target, n := taker(data[:length]), 1
		for n < p.n {
			next := g.encoding.Len(data[length:])
			if taker(data[length:length+next]) != target {
				break
			}
			length += next
			n++
		}
		if n == p.n {
			target.giveBack(p)
			return
		}
		target.giveBack(g.split(p, n))
	}
}

// emptyOut removes everything from a lane, in order.
func (l *lane) emptyOut() []*parcel {
	var all []*parcel
	for p := l.oldest(); p != nil; p = l.oldest() {
		all = append(all, l.takeOut(p, p.n))
	}
	return all
}

// expireLanesLocked removes the lanes that have had no member for the linger, while the group goes on without them.
func (g *group) expireLanesLocked(now time.Time) (gone []*lane) {
	if g.members == 0 {
		return nil
	}
	for _, l := range g.lanes {
		if !l.linger.IsZero() && !l.linger.After(now) {
			g.removeLaneLocked(l)
			gone = append(gone, l)
		}
	}
	return gone
}

// removeLaneLocked drops a lane with all that waits for it, counted.
func (g *group) removeLaneLocked(l *lane) {
	delete(g.lanes, l.name)
	for _, p := range l.emptyOut() {
		g.loseLocked(p)
		g.forgetKeyedLocked(p)
		g.discard(p)
	}
	g.loseDelayedLocked(l)
	for _, st := range g.keys {
		g.loseWaitingLocked(st, l)
	}
	// Promoting the next of a key may have put it into the lane that goes.
	for l.ready > 0 {
		for _, p := range l.emptyOut() {
			g.loseLocked(p)
			g.forgetKeyedLocked(p)
			g.discard(p)
		}
	}
}

func (g *group) loseDelayedLocked(l *lane) {
	keep := g.delayed.list[:0]
	var lost []*parcel
	for _, p := range g.delayed.list {
		if p.lane == l {
			lost = append(lost, p)
			continue
		}
		p.spot = len(keep)
		keep = append(keep, p)
	}
	clear(g.delayed.list[len(keep):])
	g.delayed.list = keep
	heap.Init(&g.delayed)
	for _, p := range lost {
		g.loseLocked(p)
		g.forgetKeyedLocked(p)
		g.discard(p)
	}
}

func (g *group) loseWaitingLocked(st *keyState, l *lane) {
	for i := st.waiting.len; i > 0; i-- {
		p := st.waiting.popFront()
		if p.lane != l {
			st.waiting.pushBack(p)
			continue
		}
		g.loseLocked(p)
		g.discard(p)
	}
	if st.idle() {
		delete(g.keys, st.name)
	}
}

// loseLocked counts a waiting parcel as dropped.
func (g *group) loseLocked(p *parcel) {
	g.fill.remove(int64(p.n), p.size())
	g.countDroppedLocked(p.n)
}

// expireLocked ends the group with all that is queued, counted.
func (g *group) expireLocked() (gone []*lane) {
	g.ended = true
	if g.stop != nil {
		g.stop()
	}
	for _, l := range g.lanes {
		g.removeLaneLocked(l)
		gone = append(gone, l)
	}
	g.spare = nil
	g.releaseWaitersLocked()
	return gone
}
