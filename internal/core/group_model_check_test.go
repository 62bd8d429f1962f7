package core

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"
)

// judgeOrder: a key's messages come in order and to one member; without a key, what waits in a lane comes in order.
func (g *modelGroup) judgeOrder(m *modelMember, x *modelMessage, before, after map[int]position) {
	for _, y := range g.messages {
		switch {
		case y == x:
		case x.key != "" && y.key == x.key && y.holder != nil && y.holder != m:
			g.t.Errorf("%s: messages %d and %d of key %s are at two members", g.name, x.id, y.id, x.key)
		case x.key != "" && y.key == x.key && y.holder == nil && y.id < x.id:
			g.t.Errorf("%s: message %d of key %s comes before message %d", g.name, x.id, x.key, y.id)
		case m.real.onProbation(): // gets what has never been delivered
		case x.key == "" && y.key == "" && y.holder == nil && y.id < x.id:
			px, py := before[x.id], before[y.id]
			stays := after[y.id].where == "lane" && after[y.id].lane == py.lane // it has not been taken over by another lane on the way
			if px.where == "lane" && py.where == "lane" && px.lane == py.lane && px.suspect == py.suspect && stays {
				g.t.Errorf("%s: message %d comes before message %d of the same lane", g.name, x.id, y.id)
			}
		}
	}
}

// position says where the real group has a message.
type position struct {
	where   string // lane, delayed, key or flight
	suspect bool
	p       *parcel
	lane    *lane
	due     time.Time
	first   uint64 // its delivery number in flight
}

// positions finds every message of the real group, and each only once.
func (g *modelGroup) positions() map[int]position {
	at := map[int]position{}
	if g.real == nil {
		return at
	}
	add := func(p *parcel, where string, suspect bool) {
		d := Delivery{Pieces: [][]byte{p.data()}}
		list := records(&d)
		if len(list) != p.n {
			g.t.Errorf("%s: a parcel of %d messages has %d", g.name, p.n, len(list))
		}
		for i, payload := range list {
			id := modelID(payload)
			if _, twice := at[id]; twice {
				g.t.Errorf("%s: message %d is in two places", g.name, id)
			}
			at[id] = position{where, suspect, p, p.lane, p.due, p.first + uint64(i)}
		}
	}
	r := g.real
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lanes {
		for i := range l.fresh.len {
			add(*l.fresh.at(i), "lane", false)
		}
		for _, p := range l.returned.list {
			add(p, "lane", false)
		}
		for _, p := range l.suspects.list {
			add(p, "lane", true)
		}
		for _, m := range l.members {
			for _, p := range m.flights {
				add(p, "flight", false)
			}
		}
	}
	for _, st := range r.keys {
		for i := range st.waiting.len {
			add(*st.waiting.at(i), "key", false)
		}
	}
	for _, p := range r.delayed.list {
		if _, waits := at[modelID(records(&Delivery{Pieces: [][]byte{p.data()}})[0])]; !waits {
			add(p, "delayed", false)
		}
	}
	return at
}

// check compares the real groups with the models.
func (w *groupWorld) check() {
	synctest.Wait()
	for _, g := range w.groups {
		g.due() // what was due at once, and may be so again when members have gone
	}
	w.checkLetters()
	if w.draining {
		w.checkDrain()
	}
	for _, g := range w.groups {
		g.due()
		if g.real != nil {
			g.checkBooks(g.checkMessages())
		}
	}
	w.checkMemory()
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// modelLetter says what a dead letter is of.
func modelLetter(group, topic string, attempts, id int) string {
	return fmt.Sprintf("%s=%d;%s=%s;%s=%s;|%d", HeaderAttempts, attempts, HeaderGroup, group, HeaderTopic, topic, id)
}

// checkLetters: there is a letter of each message that has died.
func (w *groupWorld) checkLetters() {
	var got []string
	for _, payload := range takeAll(w.letters) {
		payload, _, _ = strings.Cut(payload, ":x") // of the message itself
		before, after, _ := strings.Cut(payload, HeaderReason+"=")
		_, after, _ = strings.Cut(after, ";")
		got = append(got, before+strings.TrimSuffix(after, ":"))
	}
	slices.Sort(got)
	slices.Sort(w.buried)
	if !slices.Equal(got, w.buried) {
		w.t.Errorf("the dead letters are\n%q, want\n%q", got, w.buried)
	}
	w.buried = nil
}

// checkDrain: the members of a group stay as long as there may be something for one of them, and go then; and so do those who take dead letters, as long
// as any group has something.
func (w *groupWorld) checkDrain() {
	working := false
	for _, g := range w.groups {
		works := false
		for id, pos := range g.positions() {
			due := pos.where == "lane" || pos.where == "delayed" && (w.cutOff.IsZero() || pos.due.Before(w.cutOff))
			works = works || g.messages[id].holder != nil || due && len(pos.lane.members) > 0
		}
		for _, m := range slices.Clone(g.members) {
			if gone := m.real.Ending().Reason == EndShuttingDown; gone == works {
				w.t.Errorf("%s: %p has gone in a drain: %v; there is something for one of its group: %v", g.name, m.real, gone, works)
			} else if gone {
				g.ended(m, true)
			}
		}
		working = working || works
	}
	if gone := w.letters.Ending().Reason == EndShuttingDown; gone && working {
		w.t.Error("who takes dead letters has gone, and there may be more")
	} else if !gone && !working {
		w.t.Error("who takes dead letters stays for nothing")
	}
}

// checkMemory: what is accounted for is each frame once, and what each message and each key in a group may take beside.
func (w *groupWorld) checkMemory() {
	frames := map[*frame]bool{}
	for _, h := range w.holds {
		for _, f := range h.frames {
			frames[f] = true
		}
	}
	var want int64
	for _, g := range w.groups {
		for _, m := range g.members {
			if m.delivery != nil {
				for _, f := range m.delivery.frames {
					frames[f] = true
				}
			}
		}
		for _, pos := range g.positions() {
			frames[pos.p.frame] = true
			want += parcelOverhead
		}
		if g.real != nil {
			for name := range g.real.keys {
				want += keyOverhead + int64(len(name))
			}
		}
	}
	for f := range frames {
		want += f.cost()
	}
	if used := w.b.Stats().Memory; used != want {
		w.t.Errorf("%d bytes are accounted for, want %d", used, want)
	}
}

// checkMessages returns the group's own books as of the same moment.
func (g *modelGroup) checkMessages() GroupStats {
	at := g.positions()
	st := g.real.stats(nil)
	g.real.mu.Lock()
	defer g.real.mu.Unlock()
	for id := range at {
		if g.messages[id] == nil {
			g.t.Errorf("%s: message %d should not be in the group", g.name, id)
		}
	}
	lost := uint64(0)
	for id, x := range g.messages {
		pos, there := at[id]
		if !there {
			if x.holder != nil {
				g.t.Errorf("%s: message %d was in flight and is gone", g.name, id)
			}
			lost++
			delete(g.messages, id)
			continue
		}
		p := pos.p
		if inFlight := pos.where == "flight"; inFlight != (x.holder != nil) || inFlight && (p.member != x.holder.real || pos.first != x.sequence) {
			g.t.Errorf("%s: message %d is %s, want it at %+v", g.name, id, pos.where, x)
		}
		if p.attempt != x.attempt || p.crashes != x.crashes || !p.deadline.Equal(x.deadline) || !p.due.Equal(x.due) {
			g.t.Errorf("%s: message %d has attempt %d, %d crashes, deadline %v, due %v; want %+v", g.name, id, p.attempt, p.crashes, p.deadline, p.due, x)
		}
		if (pos.where == "lane") && !x.due.IsZero() {
			g.t.Errorf("%s: message %d waits in a lane and is due %v", g.name, id, x.due)
		}
		if !p.lane.matches(x.topic) {
			g.t.Errorf("%s: message %d on %s is in the lane of %q", g.name, id, x.topic, p.lane.name)
		}
		if g.real.lanes[p.lane.name] != p.lane {
			g.t.Errorf("%s: message %d is in a lane that is gone", g.name, id)
		}
		// Where a great many wait, only the oldest are looked at.
		if l := p.lane; pos.where == "lane" && len(l.members) > 0 && l.spare() < 0 && l.shared < fewLooks/4 {
			for _, other := range g.real.lanes {
				if other != l && other.matches(x.topic) && other.spare() > 0 {
					g.t.Errorf("%s: message %d waits in lane %q, which is short of %d, while %q could take %d", g.name, id, l.name, -l.spare(), other.name, other.spare())
				}
			}
		}
		if len(p.lane.members) == 0 {
			if pos.where != "lane" && !p.lane.aside {
				g.t.Errorf("%s: message %d waits aside for a lane without members, which does not know", g.name, id)
			}
			for _, l := range g.real.lanes {
				if len(l.members) > 0 && l.matches(x.topic) {
					g.t.Errorf("%s: message %d waits in a lane without members though that of %q has some", g.name, id, l.name)
				}
			}
		}
	}
	g.dropped += lost
	g.checkStructure()
	return st
}

func (g *modelGroup) checkBooks(st GroupStats) {
	inFlight := 0
	for _, x := range g.messages {
		if x.holder != nil {
			inFlight++
		}
	}
	want := st
	want.Members, want.Pending, want.InFlight = len(g.members), len(g.messages)-inFlight, inFlight
	want.Accepted, want.Acked, want.DeadLetters, want.Dropped = g.accepted, g.acked, g.dead, g.dropped
	want.Delivered, want.Redelivered, want.Expired, want.Ineffective = g.delivered, g.redelivered, g.expired, g.ineffective
	if st != want {
		g.t.Errorf("%s: the books say\n%+v, want\n%+v", g.name, st, want)
	}
	if st.Pending < 0 || int64(st.Pending) != g.real.waiting() {
		g.t.Errorf("%s: %d messages pending, %d take room", g.name, st.Pending, g.real.waiting())
	}
}

// checkStructure looks for what the group's own bookkeeping gets wrong before anybody notices, above all members that sleep on.
func (g *modelGroup) checkStructure() {
	r := g.real
	if len(g.lanes) != len(r.lanes) {
		g.t.Errorf("%s: %d lanes, want %d", g.name, len(r.lanes), len(g.lanes))
	}
	var bytes int64
	backlog, aside := 0, 0
	for _, l := range r.lanes {
		if l.ready > 0 {
			backlog++
		}
		if l.ready > 0 && (l.place >= len(r.backlog) || r.backlog[l.place] != l) {
			g.t.Errorf("%s: lane %q is not in the backlog", g.name, l.name)
		}
		if l.aside {
			aside++
		}
		ready, shared, parked, late, prompt := 0, 0, 0, 0, 0
		for i := range l.fresh.len {
			ready += (*l.fresh.at(i)).n
			if (*l.fresh.at(i)).shared {
				shared += (*l.fresh.at(i)).n
			}
			bytes += (*l.fresh.at(i)).size()
		}
		for _, p := range slices.Concat(l.returned.list, l.suspects.list) {
			ready += p.n
			if p.shared {
				shared += p.n
			}
			bytes += p.size()
		}
		for _, m := range l.members {
			if m.parked {
				parked++
			}
			if m.late {
				late++
			} else if !m.leaving {
				prompt++
			}
			if m.inFlight == 0 && m.alone {
				g.t.Errorf("%s: %p keeps alone for nothing", g.name, m)
			}
		}
		if late != l.late || prompt != l.prompt {
			g.t.Errorf("%s: lane %q counts %d late members and %d prompt ones, has %d and %d", g.name, l.name, l.late, l.prompt, late, prompt)
		}
		g.checkAwake(l)
		if ready != l.ready || shared != l.shared || parked != l.parked {
			g.t.Errorf("%s: lane %q counts %d messages, %d for others too, and %d parked, has %d, %d and %d",
				g.name, l.name, l.ready, l.shared, l.parked, ready, shared, parked)
		}
	}
	if backlog != len(r.backlog) || aside != r.aside {
		g.t.Errorf("%s: %d lanes in the backlog and %d with messages aside, counted are %d and %d", g.name, backlog, aside, len(r.backlog), r.aside)
	}
	for name, st := range r.keys {
		if st.idle() {
			g.t.Errorf("%s: key %q is kept for nothing", g.name, name)
		}
		for i := range st.waiting.len {
			bytes += (*st.waiting.at(i)).size()
			if i > 0 && (*st.waiting.at(i - 1)).order >= (*st.waiting.at(i)).order {
				g.t.Errorf("%s: key %q waits out of order", g.name, name)
			}
		}
		if st.flights.len == 0 && st.holder != nil || st.flights.len > 0 && (st.holder == nil || st.inLane) {
			g.t.Errorf("%s: key %q: %+v", g.name, name, st)
		}
		if st.holder != nil && st.next(st.holder) != nil && (!st.held || !slices.Contains(st.holder.heldKeys(), st)) {
			g.t.Errorf("%s: the holder of key %q does not know that more is waiting", g.name, name)
		}
	}
	for _, p := range r.delayed.list {
		if !p.behind {
			bytes += p.size()
		}
	}
	if _, used := r.fill.load(); used != bytes {
		g.t.Errorf("%s: %d bytes wait, %d are counted", g.name, bytes, used)
	}
}

// checkAwake: nobody waits to be woken while there is something to take that nobody else has been woken for.
func (g *modelGroup) checkAwake(l *lane) {
	awake := 0
	for _, m := range l.members {
		if !m.parked && m.mayTake() {
			awake++
		}
	}
	for _, m := range l.members {
		if !m.parked || !m.mayTake() {
			continue
		}
		something := awake < l.ready && l.share(m) > 0 && (l.returned.Len() > 0 || l.fresh.len > 0 || l.suspects.Len() > 0 && m.inFlight == 0)
		for _, st := range m.heldKeys() {
			something = something || st.held && st.next(m) != nil
		}
		if something {
			g.t.Errorf("%s: %p sleeps, %d others are awake for %d messages; %d keys", g.name, m, awake, l.ready, m.held.len)
		}
	}
}

func (m *Member) heldKeys() (all []*keyState) {
	for i := range m.held.len {
		all = append(all, *m.held.at(i))
	}
	return all
}
