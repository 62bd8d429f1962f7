package core

import (
	"container/heap"
	"slices"
	"time"
)

// joinLocked makes m a member.
func (g *group) joinLocked(m *Member) (_ *lane, isNew bool) {
	l, isNew := g.laneFor(m.patterns, m.access.Receive)
	m.group, m.lane = g, l
	l.members = append(l.members, m)
	l.prompt++
	l.linger = time.Time{}
	g.members++
	g.linger = time.Time{}
	l.setAside(false)
	if g.members == 1 {
		for _, other := range g.lanes {
			if len(other.members) == 0 {
				g.armLocked(other.linger) // while the group had no members it did not count
			}
		}
	}
	if len(l.members) == 1 {
		g.inheritLocked(l)
	}
	if isNew {
		g.shareLocked()
	}
	l.help(manyLooks)
	l.seekHelp(manyLooks)
	return l, isNew
}

// leave takes m off the lane's list.
func (l *lane) leave(m *Member) {
	if i := slices.Index(l.members, m); i >= 0 {
		l.members = slices.Delete(l.members, i, i+1)
	}
	switch {
	case m.late:
		l.late--
	case !m.leaving:
		l.prompt--
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
		l.seekHelp(manyLooks)
		return
	}
	l.linger = linger
	g.armLocked(linger)
	g.rehomeLocked(l)
	g.evenOutLocked()
}

// inheritLocked moves to a lane that has its first member what waits for lanes without any and is also for this one.
func (g *group) inheritLocked(heir *lane) {
	heirs := newHeirs(heir)
	for _, l := range slices.Clone(g.backlog) {
		if len(l.members) == 0 {
			g.rehomeReadyLocked(l, heirs)
		}
	}
	if g.aside > 0 {
		g.rehomeAsideLocked(func(l *lane) bool { return l.aside }, heirs)
	}
}

// rehomeLocked moves the messages of a lane without members to lanes that have some and whose patterns match.
func (g *group) rehomeLocked(l *lane) {
	if l.ready == 0 && g.delayed.Len() == 0 && len(g.keys) == 0 {
		return
	}
	heirs := newHeirs()
	for _, other := range g.lanes {
		if len(other.members) > 0 {
			heirs.lanes = append(heirs.lanes, other)
		}
	}
	if len(heirs.lanes) > 0 {
		g.rehomeReadyLocked(l, heirs)
	}
	l.setAside(g.rehomeAsideLocked(func(other *lane) bool { return other == l }, heirs))
}

// rehomeReadyLocked moves what is ready in l to those of heirs that match it.
func (g *group) rehomeReadyLocked(l *lane, heirs *heirs) {
	for _, p := range l.emptyOut() {
		g.distributeLocked(p, heirs.of(l), func(piece *parcel, target *lane) { target.giveBack(piece) })
	}
}

// rehomeAsideLocked moves to those of heirs that match it what waits outside the lanes, for one of those that isFrom says, and reports whether
// anything has found none.
func (g *group) rehomeAsideLocked(isFrom func(*lane) bool, heirs *heirs) (remains bool) {
	move := func(p *parcel, target *lane) {
		remains = remains || p.lane == target
		p.lane = target
	}
	for _, p := range slices.Clone(g.delayed.list) {
		if isFrom(p.lane) {
			g.distributeLocked(p, heirs.of(p.lane), func(piece *parcel, target *lane) {
				if move(piece, target); piece != p {
					heap.Push(&g.delayed, piece)
				}
			})
		}
	}
	for _, st := range g.keys {
		moved := false
		for i := range st.waiting.len {
			if p := *st.waiting.at(i); isFrom(p.lane) {
				move(p, heirs.of(p.lane)(p.data()))
				moved = true
			}
		}
		if moved {
			st.offer()
		}
	}
	return remains
}

// setAside notes whether messages may wait outside the lane for it, which has no members.
func (l *lane) setAside(aside bool) {
	if aside == l.aside {
		return
	}
	if l.aside = aside; aside {
		l.group.aside++
	} else {
		l.group.aside--
	}
}

// distributeLocked calls put with the messages of a parcel and where taker wants them, neighbours together.
func (g *group) distributeLocked(p *parcel, taker func(record []byte) *lane, put func(piece *parcel, target *lane)) {
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
			put(p, target)
			return
		}
		put(g.split(p, n), target)
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
	l.gone = true
	l.setAside(false)
	g.broker.lanes.Add(-1)
	g.broker.freePatterns(l.patterns)
	before := g.counters.dropped
	// What waits for its key goes first: nothing of it is to follow what goes then.
	for _, st := range g.keys {
		g.loseWaitingLocked(st, l)
	}
	for _, p := range l.emptyOut() {
		g.loseLocked(DropExpired, p)
	}
	g.loseDelayedLocked(l)
	l.lost = int(g.counters.dropped - before)
}

func (g *group) loseDelayedLocked(l *lane) {
	keep := g.delayed.list[:0]
	var lost []*parcel
	for _, p := range g.delayed.list {
		if p.lane == l {
			p.spot = -1
			lost = append(lost, p)
			continue
		}
		p.spot = len(keep)
		keep = append(keep, p)
	}
	clear(g.delayed.list[len(keep):])
	if len(keep) == 0 {
		keep = nil
	}
	g.delayed.list = keep
	heap.Init(&g.delayed)
	for _, p := range lost {
		g.loseLocked(DropExpired, p)
	}
}

func (g *group) loseWaitingLocked(st *keyState, l *lane) {
	for i := st.waiting.len; i > 0; i-- {
		p := st.waiting.popFront()
		if p.lane != l {
			st.waiting.pushBack(p)
			continue
		}
		if p.spot >= 0 {
			heap.Remove(&g.delayed, p.spot)
		}
		g.loseLocked(DropExpired, p)
	}
	st.offer()
}

// loseLocked drops a parcel that has been taken from wherever it waited.
func (g *group) loseLocked(why DropReason, p *parcel) {
	g.takenLocked(int64(p.n), p.size())
	g.countDroppedLocked(why, p.n)
	if !p.behind {
		g.forgetKeyedLocked(p)
	}
	g.discard(p)
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
