package core

import (
	"container/heap"
	"slices"
)

// add queues n fresh messages at the back; shared: they are for other lanes too.
func (l *lane) add(from *publication, start, end uint32, n int, shared bool) {
	g, f := l.group, from.frame
	order := g.order + 1
	g.order += uint64(n)
	if l.fresh.len > 0 {
		last := *l.fresh.back()
		if last.frame == f && last.end == start && last.key == nil && last.shared == shared && last.order+uint64(last.n) == order {
			last.end, last.n = end, last.n+n
			l.count(n, shared)
			l.rouse()
			return
		}
	}
	p := g.newParcel()
	p.frame, p.start, p.end, p.n = f, start, end, n
	p.lane, p.order, p.shared, p.queued = l, order, shared, from.now
	f.retain()
	l.addParcel(p)
}

// addParcel queues a fresh parcel at the back.
func (l *lane) addParcel(p *parcel) {
	if l.fresh.len > 0 && (*l.fresh.back()).frame != p.frame {
		l.compactBack()
	}
	l.fresh.pushBack(p)
	l.count(p.n, p.shared)
	l.rouse()
}

// compactBack exchanges the frame that came last, if it is large and little of it waits here, for copies of that.
func (l *lane) compactBack() {
	f := (*l.fresh.back()).frame
	size, i := int64(0), l.fresh.len
	for ; i > 0 && (*l.fresh.at(i - 1)).frame == f; i-- {
		size += (*l.fresh.at(i - 1)).size()
		if !f.sparse(size, l.fresh.len-i+1) {
			return
		}
	}
	for ; i < l.fresh.len; i++ {
		(*l.fresh.at(i)).compact()
	}
}

// giveBack queues a parcel that was in the group before, in its place.
func (l *lane) giveBack(p *parcel) {
	p.lane, p.member = l, nil
	l.putBack(p)
	l.rouse()
}

// putBack is giveBack for what was ready in the lane a moment ago.
func (l *lane) putBack(p *parcel) {
	p.shared = p.shared || p.order <= l.group.mixed
	if p.crashes >= l.group.suspicion() {
		heap.Push(&l.suspects, p)
	} else {
		heap.Push(&l.returned, p)
	}
	l.count(p.n, p.shared)
}

// suspicion is how many members a message may crash with before it is delivered alone, so that one that kills its
// workers takes no others with it to the dead letters. One crash is anybody's; where max_attempts allows no more, it must do.
func (g *group) suspicion() int { return max(1, min(2, g.settings.MaxAttempts-1)) }

// next returns what came first of what the lane holds, suspects aside, and how many messages of it come before all others; nil: nothing
// is there. What was given back has come before what is fresh, but for what other lanes or keys have handed over.
func (l *lane) next() (p *parcel, n int) {
	p = l.returned.front()
	if l.fresh.len == 0 {
		if p == nil {
			return nil, 0
		}
		return p, p.n
	}
	other := *l.fresh.front()
	if p == nil {
		return other, other.n
	}
	if other.order < p.order {
		p, other = other, p
	}
	return p, int(min(uint64(p.n), other.order-p.order))
}

// oldest returns the parcel that has waited longest, where it is; nil: the lane is empty.
func (l *lane) oldest() *parcel {
	oldest, _ := l.next()
	if p := l.suspects.front(); p != nil && (oldest == nil || p.order < oldest.order) {
		return p
	}
	return oldest
}

// takeOut removes the first n messages, or as many as there are, of a parcel that is at one of the lane's fronts.
func (l *lane) takeOut(p *parcel, n int) *parcel {
	if n < p.n {
		head := l.group.split(p, n)
		l.count(-n, p.shared)
		switch p {
		case l.suspects.front():
			heap.Fix(&l.suspects, 0)
		case l.returned.front():
			heap.Fix(&l.returned, 0)
		}
		return head
	}
	switch p {
	case l.suspects.front():
		heap.Pop(&l.suspects)
	case l.returned.front():
		heap.Pop(&l.returned)
	default:
		l.fresh.popFront()
	}
	l.count(-p.n, p.shared)
	return p
}

// count notes that n more messages are ready, or fewer.
func (l *lane) count(n int, shared bool) {
	g, was := l.group, l.ready
	l.ready += n
	if shared {
		l.shared += n
	}
	switch {
	case was == 0 && l.ready > 0:
		l.place = len(g.backlog)
		g.backlog = append(g.backlog, l)
	case was > 0 && l.ready == 0:
		last := len(g.backlog) - 1
		g.backlog[l.place] = g.backlog[last]
		g.backlog[l.place].place = l.place
		g.backlog[last] = nil
		g.backlog = g.backlog[:last]
	}
}

// credit is how many more messages the lane's members may be given, aside from late ones and those that are kept for a suspect.
func (l *lane) credit() int {
	n := 0
	for _, m := range l.members {
		if !m.late && m.isFree() {
			n += m.credit()
		}
	}
	return n
}

// promptOnly reports whether late members are given nothing, since one that is not late could be.
func (l *lane) promptOnly() bool {
	return l.late > 0 && slices.ContainsFunc(l.members, func(m *Member) bool { return !m.late && m.isFree() })
}

// share is how many more messages m may be given for what is ready to be shared out evenly: no more than bring it to what all who can take
// something now would have in flight. So a queue that is short does not go whole to the first who asks, and asks again, before the
// others have woken up. Who is being written to is not waited for.
func (l *lane) share(m *Member) int {
	if m.group.settings.Ack == AckNone && l.ready > shortQueue {
		return (l.ready + len(l.members) - 1) / len(l.members)
	}
	promptOnly := l.promptOnly()
	n, load := 0, l.ready
	for _, o := range l.members {
		if o != m && (o.writing > 0 || !o.isNext(promptOnly)) {
			continue
		}
		if m.waitsFor(o) {
			return 0
		}
		n++
		load += o.inFlight
	}
	return max(0, (load+n-1)/max(1, n)-m.inFlight)
}

// waitsFor reports whether m is to get nothing until o, which has been woken and was served longer ago, has taken something. Without acks
// nobody has anything in flight for long, so it is by turns that a short queue is shared out.
func (m *Member) waitsFor(o *Member) bool {
	return o != m && m.group.settings.Ack == AckNone && !o.parked && o.served < m.served
}

// shortQueue is how many messages are so few that members without acks take turns. With more, each takes its part as often as it comes.
const shortQueue = 64

// undrainIfDone is undrain where no suspect is left: what the member was waiting for has been dropped, or is elsewhere.
func (l *lane) undrainIfDone() {
	if l.drainer != nil && l.suspects.Len() == 0 {
		l.undrain()
	}
}

// undrain lets the member go on that has taken nothing to be ready for a suspect.
func (l *lane) undrain() {
	m := l.drainer
	l.drainer = nil
	if m != nil {
		l.help(fewLooks)
		m.wakeForMore()
	}
}

// rouse wakes members that wait for something to do, the least loaded first and of those the one that was served longest ago, and no
// more than there are messages.
func (l *lane) rouse() {
	n := min(l.ready, l.parked)
	if n == 0 {
		return
	}
	promptOnly := l.promptOnly()
	for ; n > 0; n-- {
		var idlest *Member
		for _, m := range l.members {
			if m.parked && m.isNext(promptOnly) && (idlest == nil || m.idlerThan(idlest)) {
				idlest = m
			}
		}
		if idlest == nil || l.share(idlest) == 0 {
			return
		}
		idlest.unpark()
	}
}

func (m *Member) idlerThan(other *Member) bool {
	if m.inFlight != other.inFlight {
		return m.inFlight < other.inFlight
	}
	return m.served < other.served
}
