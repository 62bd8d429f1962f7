package core

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"
)

// A message waits in one lane, chosen when it came. Should the members there have their fill, be late or go, while others that it is also for
// have nothing to do, it moves to those: lanes that come to have free credit help, lanes that lose some seek help, and the group's clock
// looks for whatever is left.

// How many messages and patterns are looked at in search of one to move: little where members go on with their work, more where one fails.
const (
	fewLooks  = 64
	manyLooks = 2048
)

// spare is how many more messages than are ready in the lane its members may be given; where it is negative, so many are too many.
func (l *lane) spare() int { return l.credit() - l.ready }

// help takes over what waits in other lanes for members that have their fill, as far as the lane has free credit.
func (l *lane) help(looks int) {
	g := l.group
	if len(g.backlog) == 0 || len(g.backlog) == 1 && l.ready > 0 {
		return
	}
	takers := []taker{{l, l.spare()}}
	if takers[0].room <= 0 {
		return
	}
	for _, other := range slices.Backward(g.backlog) { // those that leave it meanwhile leave room at its end
		if other != nil && other != l && other.shared > 0 && len(other.members) > 0 {
			looks = g.relieveLocked(other, takers, looks)
		}
	}
}

// seekHelp lets other lanes take over what the lane's members cannot be given now.
func (l *lane) seekHelp(looks int) {
	g := l.group
	if l.shared == 0 || len(g.lanes) == 1 || len(l.members) == 0 || l.spare() >= 0 {
		return
	}
	if takers := g.takersLocked(); len(takers) > 0 {
		g.relieveLocked(l, takers, looks)
	}
}

// evenOutLocked has all lanes helped that need it.
func (g *group) evenOutLocked() {
	if len(g.lanes) == 1 || !slices.ContainsFunc(g.backlog, func(l *lane) bool { return l.shared > 0 }) {
		return
	}
	takers, looks := g.takersLocked(), manyLooks
	if len(takers) == 0 {
		return
	}
	for _, l := range slices.Clone(g.backlog) {
		if l.shared > 0 && len(l.members) > 0 {
			looks = g.relieveLocked(l, takers, looks)
		}
	}
}

// takersLocked returns all lanes with free credit.
func (g *group) takersLocked() (takers []taker) {
	for _, l := range g.lanes {
		if len(l.members) == 0 {
			continue
		}
		if room := l.spare(); room > 0 {
			takers = append(takers, taker{l, room})
		}
	}
	return takers
}

// taker is a lane that takes messages over.
type taker struct {
	*lane
	room int // for how many more
}

// relief is the search for messages of a lane that others may have.
type relief struct {
	group  *group
	takers []taker
	looks  int
	topic  []byte   // last looked at
	fit    []*taker // who may have it
}

// relieveLocked moves what is too much for a lane to those of takers that match it, as far as they have room, about the oldest first, and
// returns how many looks are left.
func (g *group) relieveLocked(l *lane, takers []taker, looks int) int {
	surplus := -l.spare()
	if surplus <= 0 || looks <= 0 {
		return looks
	}
	r := relief{group: g, takers: takers, looks: looks}
	for _, p := range l.firstShared(looks) {
		if surplus <= 0 || r.looks <= 0 {
			break
		}
		skip, n, to := r.find(p, surplus)
		if to == nil {
			continue
		}
		l.remove(p)
		for to != nil && p != nil {
			if skip > 0 {
				l.putBack(g.split(p, skip))
			}
			piece := p
			if n < p.n {
				piece = g.split(p, n)
			} else {
				p = nil
			}
			surplus -= n
			to.room -= n
			g.moveLocked(piece, to.lane)
			if p != nil {
				skip, n, to = r.find(p, surplus)
			}
		}
		if p != nil {
			l.putBack(p)
		}
	}
	l.undrainIfDone()
	return r.looks
}

// find looks for the first messages of a parcel, neighbours and no more than most, that a taker has room for.
func (r *relief) find(p *parcel, most int) (skip, n int, to *taker) {
	for data := p.data(); len(data) > 0 && most > 0 && r.looks > 0; {
		length := r.group.encoding.Len(data)
		t := r.takerOf(data[:length])
		switch {
		case to == nil && t == nil:
			skip++
		case to == nil:
			to, n = t, 1
		case t == nil || n == most || n == to.room || !slices.Contains(r.fit, to):
			return skip, n, to
		default:
			n++
		}
		data = data[length:]
	}
	return skip, n, to
}

// takerOf returns the one with the most room that may have a record; nil: none.
func (r *relief) takerOf(record []byte) (best *taker) {
	r.looks--
	if topic := r.group.encoding.Topic(record); !bytes.Equal(topic, r.topic) {
		r.topic, r.fit = topic, r.fit[:0]
		name := string(topic)
		for i := range r.takers {
			if t := &r.takers[i]; t.room > 0 && t.matches(name) {
				r.fit = append(r.fit, t)
			}
		}
		r.looks -= len(r.takers)
	}
	for _, t := range r.fit {
		if t.room > 0 && (best == nil || t.room > best.room) {
			best = t
		}
	}
	return best
}

// moveLocked queues a parcel that has been taken out of a lane in another one, which matches it, with the next ones of its key that wait.
func (g *group) moveLocked(p *parcel, to *lane) {
	from := p.lane
	to.giveBack(p)
	st := p.key
	if st == nil {
		return
	}
	if st.lane == from {
		st.lane = to
	}
	for i := range min(st.waiting.len, fewLooks) {
		next := *st.waiting.at(i)
		if topic := string(g.encoding.Topic(next.data())); next.lane == from && to.matches(topic) {
			next.lane = to
		}
	}
}

// firstShared returns parcels that are ready in the lane and may be for others, of each kind about the n oldest, in order.
func (l *lane) firstShared(n int) []*parcel {
	var list []*parcel
	add := func(p *parcel) {
		if p.shared {
			list = append(list, p)
		}
	}
	for _, h := range []*parcelHeap{&l.returned, &l.suspects} {
		for _, p := range h.list[:min(n, h.Len())] {
			add(p)
		}
	}
	most := len(list) + n
	for i := 0; i < l.fresh.len && i < 16*n && len(list) < most; i++ {
		add(*l.fresh.at(i))
	}
	slices.SortFunc(list, func(a, b *parcel) int { return cmp.Compare(a.order, b.order) })
	return list
}

// shareLocked notes that what is in the group may also be for a lane that is new.
func (g *group) shareLocked() {
	g.mixed = g.order
	for _, l := range g.backlog {
		for _, h := range []*parcelHeap{&l.returned, &l.suspects} {
			for _, p := range h.list {
				p.shared = true
			}
		}
		for i := range l.fresh.len {
			(*l.fresh.at(i)).shared = true
		}
		l.shared = l.ready
	}
}

// remove takes a parcel that is ready out of the lane, wherever it is.
func (l *lane) remove(p *parcel) {
	switch {
	case l.returned.holds(p):
		heap.Remove(&l.returned, p.spot)
	case l.suspects.holds(p):
		heap.Remove(&l.suspects, p.spot)
	default:
		i := 0
		for *l.fresh.at(i) != p {
			i++
		}
		l.fresh.remove(i)
	}
	l.count(-p.n, p.shared)
}
