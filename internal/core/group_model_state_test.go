package core

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"testing/synctest"
	"time"
)

// modelGroup is what a group must be like: which messages it has and where each is, in maps and loops. It follows what the real
// one decides freely (who is given what, and which lane a message waits in) and judges it.
type modelGroup struct {
	*groupWorld
	name     string
	settings GroupSettings
	real     *group // nil: the group does not exist

	members  []*modelMember
	messages map[int]*modelMessage
	lanes    map[string]*modelLane
	linger   time.Time

	accepted, acked, dead, delivered, redelivered, expired, ineffective, dropped uint64
}

// modelLane is whose messages a group takes.
type modelLane struct {
	patterns *PatternSet
	may      *Permission
	goes     time.Time // zero while it has members
}

func (l *modelLane) matches(topic string) bool { return l.patterns.Match(topic) && l.may.Match(topic) }

type modelMember struct {
	*modelLane
	real      *Member
	leaving   bool
	delivery  *Delivery // taken and not settled
	since     time.Time // when it was taken
	sequence  uint64
	writtenTo uint64    // the last delivery number that is known to be written
	progress  time.Time // when the transport last wrote something
}

type modelMessage struct {
	id       int
	topic    string
	key      string
	attempt  int
	crashes  int
	due      time.Time    // waits for another attempt until then
	holder   *modelMember // nil: it waits
	sequence uint64
	deadline time.Time
	written  time.Time // zero: the deadline counts from there
}

func (g *modelGroup) join() {
	patterns := groupModelPatterns[g.rng.IntN(g.kinds)]
	may := groupModelAllowed[g.rng.IntN(g.allowed)]
	o := JoinOptions{
		Group:       g.name,
		Access:      Access{Receive: may},
		ID:          g.name + []string{"", "1", "2"}[g.rng.IntN(3)],
		Patterns:    patterns,
		MaxInFlight: []int{1, 2, 5, 20}[g.rng.IntN(4)],
		Settings:    g.settings,
	}
	if o.ID == g.name {
		o.ID = ""
	}
	joined, err := g.b.Join(o)
	if errors.Is(err, ErrNotAllowed) {
		return
	}
	if err != nil {
		g.t.Fatal(err)
	}
	g.note("%s: %p joins for %q, %d in flight", g.name, joined, patterns, o.MaxInFlight)
	set, _ := ParsePatterns(patterns)
	if g.real == nil {
		g.messages = map[int]*modelMessage{}
		g.lanes = map[string]*modelLane{}
		g.accepted, g.acked, g.dead, g.delivered, g.redelivered, g.expired, g.ineffective, g.dropped = 0, 0, 0, 0, 0, 0, 0, 0
	}
	g.real = joined.group
	name := laneName(set, may)
	if g.lanes[name] == nil {
		g.lanes[name] = &modelLane{patterns: set, may: may}
	}
	m := &modelMember{real: joined, modelLane: g.lanes[name]}
	g.members = append(g.members, m)
	m.goes = time.Time{}
	g.linger = time.Time{}
	for _, old := range g.members {
		if old != m && o.ID != "" && old.real.ID() == o.ID {
			g.ended(old, false)
			break
		}
	}
}

func (g *modelGroup) published(p post) {
	if g.real == nil {
		return
	}
	for _, l := range g.lanes {
		if l.matches(p.topic) {
			id := modelID(p.payload)
			g.messages[id] = &modelMessage{id: id, topic: p.topic, key: p.key}
			g.accepted++
			return
		}
	}
}

// take takes a delivery and judges it; now and then its writing takes a while.
func (g *modelGroup) take(m *modelMember) {
	if m.delivery != nil {
		g.written(m, g.rng.IntN(5) > 0)
		return
	}
	before := g.positions()
	d := new(Delivery)
	if !m.real.Take(d, []int64{1, 200, 64 << 10}[g.rng.IntN(3)]) {
		if m.leaving && len(g.flights(m, 0, math.MaxUint64)) == 0 {
			g.ended(m, true)
		}
		return
	}
	list, after := records(d), g.positions()
	g.note("%s: %p takes %d from %d on, attempt %d", g.name, m.real, len(list), d.FirstSequence, d.Attempt)
	if d.FirstSequence != m.sequence+1 {
		g.t.Errorf("delivery begins with %d after %d", d.FirstSequence, m.sequence)
	}
	m.delivery, m.since = d, time.Now()
	inFlight := len(g.flights(m, 0, math.MaxUint64))
	for _, payload := range list {
		m.sequence++
		inFlight++
		g.deliver(m, modelID(payload), d.Attempt, before, after)
	}
	if g.settings.Ack == AckExplicit && inFlight > m.real.MaxInFlight() {
		g.t.Errorf("%d in flight, more than %d", inFlight, m.real.MaxInFlight())
	}
	if m.leaving {
		g.t.Errorf("a member that leaves was given more")
	}
	if g.rng.IntN(4) > 0 {
		g.written(m, true)
	}
}

func (g *modelGroup) deliver(m *modelMember, id, attempt int, before, after map[int]position) {
	x := g.messages[id]
	switch {
	case x == nil:
		g.t.Fatalf("%s: message %d is delivered, which is not in the group", g.name, id)
	case x.holder != nil:
		g.t.Errorf("%s: message %d is delivered twice at once", g.name, id)
	case !m.matches(x.topic):
		g.t.Errorf("%s: message %d on %s goes to a member of %q", g.name, id, x.topic, m.real.lane.name)
	case x.due.After(time.Now()):
		g.t.Errorf("%s: message %d comes %v too early", g.name, id, time.Until(x.due))
	case attempt != x.attempt+1:
		g.t.Errorf("%s: message %d comes as attempt %d, want %d", g.name, id, attempt, x.attempt+1)
	}
	if crashed := x.crashes >= g.real.suspicion(); x.key == "" && crashed && len(g.flights(m, 0, math.MaxUint64)) > 0 {
		g.t.Errorf("%s: message %d, under suspicion, does not come alone", g.name, id)
	}
	for _, y := range g.flights(m, 0, math.MaxUint64) {
		if y.key == "" && y.crashes >= g.real.suspicion() {
			g.t.Errorf("%s: message %d comes beside message %d, which is under suspicion", g.name, id, y.id)
		}
	}
	if others := len(g.flights(m, 0, math.MaxUint64)); m.real.onProbation() && (x.attempt > 0 || others > 0) {
		g.t.Errorf("%s: message %d, attempt %d, goes to a late member with %d in flight", g.name, id, attempt, others)
	}
	g.judgeOrder(m, x, before, after)
	if x.attempt > 0 {
		g.redelivered++
	}
	g.delivered++
	x.attempt++
	x.holder, x.sequence, x.due, x.written = m, m.sequence, time.Time{}, time.Time{}
}

// flights returns what is in flight at a member, by number.
func (g *modelGroup) flights(m *modelMember, first, last uint64) []*modelMessage {
	var list []*modelMessage
	for _, x := range g.messages {
		if x.holder == m && first <= x.sequence && x.sequence <= last {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(x, y *modelMessage) int { return cmp.Compare(x.sequence, y.sequence) })
	return list
}

// giveBack makes x wait again, or bury it.
func (g *modelGroup) giveBack(x *modelMessage, charge bool, due time.Time) {
	if charge && x.attempt >= g.settings.MaxAttempts {
		g.bury(x)
		return
	}
	if !charge {
		x.attempt--
	}
	x.holder, x.sequence, x.deadline, x.written, x.due = nil, 0, time.Time{}, time.Time{}, due
}

func (g *modelGroup) bury(x *modelMessage) {
	g.dead++
	g.buried = append(g.buried, modelLetter(g.name, x.topic, x.attempt, x.id))
	delete(g.messages, x.id)
}

// freed ends a member that leaves and has nothing left.
func (g *modelGroup) freed(m *modelMember) {
	if m.leaving && slices.Contains(g.members, m) && len(g.flights(m, 0, math.MaxUint64)) == 0 {
		g.ended(m, true)
	}
}

// ranges makes up what a member may say, sense or not.
func (g *modelGroup) ranges(m *modelMember) []SequenceRange {
	var list []SequenceRange
	for range 1 + g.rng.IntN(3) {
		a, b := g.rng.Uint64N(m.sequence+2), g.rng.Uint64N(m.sequence+2)
		if low := m.sequence - min(m.sequence, 12); g.rng.IntN(3) > 0 {
			a, b = low+g.rng.Uint64N(14), low+g.rng.Uint64N(14)
		}
		switch g.rng.IntN(8) {
		case 0:
			list = append(list, SequenceRange{0, math.MaxUint64})
		case 1:
			list = append(list, SequenceRange{math.MaxUint64, math.MaxUint64}, SequenceRange{max(a, b) + 1, min(a, b)})
		case 2, 3:
			list = append(list, SequenceRange{min(a, b), max(a, b)})
		default:
			list = append(list, SequenceRange{a, a})
		}
	}
	return list
}

func (g *modelGroup) answer(m *modelMember) {
	ranges := g.ranges(m)
	switch g.rng.IntN(8) {
	case 0, 1, 2, 3:
		g.ack(m, ranges...)
	case 4:
		g.nack(m, Nack{Action: NackRelease}, ranges)
	case 5:
		g.nack(m, Nack{Action: NackReject, Reason: "no"}, ranges)
	case 6:
		n := Nack{}
		if g.rng.IntN(3) > 0 {
			delay := []time.Duration{0, time.Second, 10 * time.Second, time.Hour}[g.rng.IntN(4)]
			n.Delay = &delay
		}
		g.nack(m, n, ranges)
	default:
		d := []time.Duration{0, time.Second, time.Minute}[g.rng.IntN(3)]
		g.note("%s: %p extends %v by %v", g.name, m.real, ranges, d)
		m.real.Extend(d, ranges...)
		switch {
		case g.settings.Ack == AckNone:
			d = 0
		case d == 0:
			d = *g.settings.AckDeadline
		}
		g.apply(m, ranges, func(x *modelMessage) {
			x.deadline, x.written = time.Time{}, time.Time{}
			if d > 0 {
				x.deadline = time.Now().Add(d)
			}
		})
	}
}

func (g *modelGroup) apply(m *modelMember, ranges []SequenceRange, f func(x *modelMessage)) {
	for _, r := range ranges {
		list := g.flights(m, r.First, r.Last)
		if len(list) == 0 {
			g.ineffective++
		}
		for _, x := range list {
			f(x)
		}
	}
}

func (g *modelGroup) ack(m *modelMember, ranges ...SequenceRange) {
	g.note("%s: %p acks %v", g.name, m.real, ranges)
	m.real.Ack(ranges...)
	g.apply(m, ranges, func(x *modelMessage) {
		g.acked++
		delete(g.messages, x.id)
	})
	g.freed(m)
}

func (g *modelGroup) nack(m *modelMember, n Nack, ranges []SequenceRange) {
	g.note("%s: %p nacks %v: %d, %v", g.name, m.real, ranges, n.Action, n.Delay)
	now := time.Now()
	m.real.Nack(n, ranges...)
	at := g.positions()
	g.apply(m, ranges, func(x *modelMessage) {
		switch {
		case n.Action == NackRelease:
			g.giveBack(x, false, time.Time{})
		case n.Action == NackReject:
			g.bury(x)
		case n.Delay != nil && *n.Delay > 0:
			g.giveBack(x, true, now.Add(*n.Delay))
		case n.Delay != nil:
			g.giveBack(x, true, time.Time{})
		default:
			pause := min(maxBackoff, minBackoff<<(x.attempt-1))
			if g.giveBack(x, true, time.Time{}); x.holder != nil || at[x.id].where == "" {
				return
			}
			x.due = at[x.id].due // is random
			if d := x.due.Sub(now); d < pause*3/4 || d > pause*5/4 {
				g.t.Errorf("%s: message %d backs off for %v, want about %v", g.name, x.id, d, pause)
			}
		}
	})
	g.freed(m)
}

// depart ends a member in one of several ways.
func (g *modelGroup) depart(m *modelMember) {
	switch g.rng.IntN(4) {
	case 0:
		g.note("%s: %p crashes", g.name, m.real)
		g.end(m, m.real.Close)
	case 1:
		g.note("%s: %p is kicked", g.name, m.real)
		g.end(m, func() { m.real.end(EndKicked) })
	case 2:
		g.note("%s: %p has left", g.name, m.real)
		m.leaving = true
		g.end(m, m.real.Left)
	default:
		g.note("%s: %p leaves", g.name, m.real)
		m.real.Leave()
		m.leaving = true
		g.freed(m)
	}
}

func (g *modelGroup) end(m *modelMember, how func()) {
	how()
	g.ended(m, m.leaving)
}

// ended gives back what an ended member has in flight.
func (g *modelGroup) ended(m *modelMember, clean bool) {
	clean = clean || m.leaving
	for _, x := range g.flights(m, 0, math.MaxUint64) {
		crash := !clean && (m.delivery == nil || x.sequence < m.delivery.FirstSequence)
		if crash {
			x.crashes++
		}
		g.giveBack(x, crash, time.Time{})
	}
	if m.delivery != nil {
		m.real.Settle(m.delivery, false)
	}
	m.real.Close()
	g.members = slices.DeleteFunc(g.members, func(o *modelMember) bool { return o == m })
	if !slices.ContainsFunc(g.members, func(o *modelMember) bool { return o.modelLane == m.modelLane }) {
		m.goes = time.Now().Add(g.b.options.GroupLinger)
	}
	if len(g.members) == 0 {
		g.linger = time.Now().Add(g.b.options.GroupLinger)
	}
	synctest.Wait()
}

// earliest returns when the next thing becomes due in the group, or next if that is before.
func (g *modelGroup) earliest(next time.Time) time.Time {
	consider := func(at time.Time) {
		if !at.IsZero() && at.After(time.Now()) && at.Before(next) {
			next = at
		}
	}
	for _, x := range g.messages {
		consider(x.deadline)
		consider(x.due)
	}
	for _, m := range g.members {
		if m.delivery != nil {
			consider(m.stalls())
		}
	}
	for _, l := range g.lanes {
		consider(l.goes)
	}
	consider(g.linger)
	return next
}

// due does what is due now.
func (g *modelGroup) due() {
	now := time.Now()
	for _, x := range g.messages {
		if !x.deadline.IsZero() && !x.deadline.After(now) {
			m := x.holder
			if due := g.laterDeadline(x); due.After(now) {
				x.deadline = due
				continue
			}
			g.expired++
			g.giveBack(x, true, time.Time{})
			g.freed(m)
		}
		if !x.due.After(now) {
			x.due = time.Time{}
		}
	}
	for _, m := range slices.Clone(g.members) {
		if m.delivery != nil && !m.stalls().After(now) {
			if m.real.Ending().Reason != EndStalled {
				g.t.Errorf("%s: a member that takes nothing goes on", g.name)
			}
			g.ended(m, false)
		}
	}
	if len(g.members) > 0 {
		maps.DeleteFunc(g.lanes, func(_ string, l *modelLane) bool { return !l.goes.IsZero() && !l.goes.After(now) })
	}
	if g.real != nil && !g.linger.IsZero() && !g.linger.After(now) {
		if slices.Contains(g.b.allGroups(), g.real) {
			g.t.Errorf("%s: the linger is over and the group goes on", g.name)
		}
		g.real, g.messages, g.lanes, g.linger = nil, nil, nil, time.Time{}
	}
}
