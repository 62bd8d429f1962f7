package core

import (
	"container/heap"
	"slices"
	"strings"
	"time"
)

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

// compactBack is compactLast for what is fresh in the lane.
func (l *lane) compactBack() bool {
	return compactLast(l.fresh.len, func(i int) *extent { return &(*l.fresh.at(i)).extent })
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
