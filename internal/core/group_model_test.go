package core

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	groupSeeds = flag.Int("group-seeds", 40, "how many seeds TestGroupsAgainstANaiveModel tries")
	groupSeed  = flag.Uint64("group-seed", 0, "the first of them")
	groupSteps = flag.Int("group-steps", 400, "how many steps it takes with each")
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
	lanes    map[string]time.Time // by their patterns: when one without members goes; zero while it has some
	linger   time.Time

	accepted, acked, dead, delivered, redelivered, expired, ineffective, dropped uint64
}

type modelMember struct {
	real     *Member
	patterns *PatternSet
	leaving  bool
	delivery *Delivery // taken and not settled
	since    time.Time // when it was taken
	sequence uint64
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
}

// groupWorld is one broker with two groups and a broadcast subscription, and their models.
type groupWorld struct {
	t       *testing.T
	rng     *rand.Rand
	b       *Broker
	watcher *Subscription
	groups  []*modelGroup
	next    int // id of the next message
	busy    int // publishes in 20 steps
	keyed   int // messages with a key, of 4
	kinds   int // of patterns that members have
	log     []string
}

var (
	groupModelTopics   = []string{"job.a", "job.b", "job.c.d", "other"}
	groupModelPatterns = [][]string{{"job.*"}, {"job.a"}, {"job.**", "!job.b"}, {"job.b", "other"}, {"**"}}
)

// TestGroupsAgainstANaiveModel takes random steps with two groups in virtual time, and after each compares every message, counter, deadline
// and wake-up with a model. A failure names the seed; -group-seed, -group-seeds and -group-steps choose others.
func TestGroupsAgainstANaiveModel(t *testing.T) {
	for i := range *groupSeeds {
		seed := *groupSeed + uint64(i)
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newGroupWorld(t, seed).run(*groupSteps) })
		})
	}
}

func newGroupWorld(t *testing.T, seed uint64) *groupWorld {
	rng := rand.New(rand.NewPCG(seed, 3))
	w := &groupWorld{t: t, rng: rng, busy: []int{1, 3, 6}[rng.IntN(3)], keyed: rng.IntN(4), kinds: []int{1, 2, 5}[rng.IntN(3)]}
	w.b = newBroker(t, func(o *Options) {
		o.GroupCapacity = []int{3, 12, 50, 1000}[rng.IntN(4)]
		o.GroupCapacityBytes = []int64{1 << 10, 1 << 12, 1 << 20}[rng.IntN(3)]
		o.GroupLinger = []time.Duration{0, 5 * time.Second, time.Minute}[rng.IntN(3)]
		o.ConsumerCapacity = 1 << 16
	})
	w.watcher = subscribe(t, w.b, SubscribeOptions{Patterns: []string{"**"}})
	for _, name := range []string{"a", "b"} {
		deadline := []time.Duration{0, 2 * time.Second, 30 * time.Second}[rng.IntN(3)]
		s := GroupSettings{
			Ack:         []AckMode{AckExplicit, AckExplicit, AckExplicit, AckNone}[rng.IntN(4)],
			Overflow:    []OverflowPolicy{OverflowDefault, OverflowReject, OverflowDropOldest, OverflowDropNewest}[rng.IntN(4)],
			AckDeadline: &deadline,
			MaxAttempts: 1 + rng.IntN(6),
		}
		w.groups = append(w.groups, &modelGroup{
			groupWorld: w,
			name:       name,
			settings:   s.effective(&w.b.options),
		})
	}
	return w
}

func (w *groupWorld) run(steps int) {
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the last steps:\n%s", strings.Join(w.log[max(0, len(w.log)-30):], "\n"))
		}
	}()
	for range steps {
		w.step()
		w.check()
	}
	w.settleAll()
	for _, g := range w.groups {
		for len(g.members) > 0 {
			g.end(g.members[0], g.members[0].real.Close)
		}
	}
	w.sleep(w.b.options.GroupLinger)
	w.check()
	for _, g := range w.groups {
		if g.real != nil {
			w.t.Errorf("group %s has outlived its linger", g.name)
		}
	}
	wantMemory(w.t, w.b, 0)
}

func (w *groupWorld) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *groupWorld) step() {
	g := w.groups[w.rng.IntN(len(w.groups))]
	if len(g.members) == 0 || w.rng.IntN(15) == 0 && len(g.members) < 6 {
		if w.rng.IntN(3) > 0 {
			g.join()
			return
		}
	}
	switch op := w.rng.IntN(20); {
	case op < w.busy:
		w.publish()
	case op == w.busy:
		w.sleep([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 2 * time.Second, 20 * time.Second, 70 * time.Second}[w.rng.IntN(6)])
	case len(g.members) == 0:
	default:
		m := g.members[w.rng.IntN(len(g.members))]
		switch {
		case op < 13:
			g.take(m)
		case op < 18:
			g.answer(m)
		default:
			g.depart(m)
		}
	}
}

// settleAll lets members take and acknowledge until nothing they may have is left.
func (w *groupWorld) settleAll() {
	for _, g := range w.groups {
		for range 3000 {
			busy := false
			for _, m := range slices.Clone(g.members) {
				before := m.sequence
				if m.delivery == nil {
					g.take(m)
				}
				busy = busy || m.sequence > before
				if m.delivery != nil {
					g.written(m, true)
					busy = true
				}
				if slices.Contains(g.members, m) {
					busy = busy || len(g.flights(m, 0, math.MaxUint64)) > 0
					g.ack(m, SequenceRange{0, math.MaxUint64})
				}
				w.check()
			}
			if !busy {
				break
			}
		}
		for id, at := range g.positions() {
			if at.where == "lane" && slices.ContainsFunc(g.members, func(m *modelMember) bool { return m.real.lane == at.lane && !m.leaving }) {
				w.t.Errorf("%s: message %d is stuck", g.name, id)
			}
		}
	}
}

func (g *modelGroup) join() {
	patterns := groupModelPatterns[g.rng.IntN(g.kinds)]
	o := JoinOptions{
		Group:       g.name,
		ID:          g.name + []string{"", "1", "2"}[g.rng.IntN(3)],
		Patterns:    patterns,
		MaxInFlight: []int{1, 2, 5, 20}[g.rng.IntN(4)],
		Settings:    g.settings,
	}
	if o.ID == g.name {
		o.ID = ""
	}
	joined, err := g.b.Join(o)
	if err != nil {
		g.t.Fatal(err)
	}
	g.note("%s: %p joins for %q, %d in flight", g.name, joined, patterns, o.MaxInFlight)
	set, _ := ParsePatterns(patterns)
	if g.real == nil {
		g.messages = map[int]*modelMessage{}
		g.lanes = map[string]time.Time{}
		g.accepted, g.acked, g.dead, g.delivered, g.redelivered, g.expired, g.ineffective, g.dropped = 0, 0, 0, 0, 0, 0, 0, 0
	}
	g.real = joined.group
	m := &modelMember{real: joined, patterns: set}
	g.members = append(g.members, m)
	g.lanes[laneName(set, nil)] = time.Time{}
	g.linger = time.Time{}
	for _, old := range g.members {
		if old != m && o.ID != "" && old.real.ID() == o.ID {
			g.ended(old, false)
			break
		}
	}
}

func (w *groupWorld) publish() {
	var posts []post
	for range 1 + w.rng.IntN(6) {
		topic := groupModelTopics[w.rng.IntN(len(groupModelTopics))]
		for range 1 + w.rng.IntN(3) {
			key := ""
			if w.rng.IntN(4) < w.keyed {
				key = string(rune('k' + w.rng.IntN(3)))
			}
			posts = append(posts, post{topic, strconv.Itoa(w.next) + ":" + strings.Repeat("x", w.rng.IntN(3)*w.rng.IntN(200)), key})
			w.next++
		}
	}
	room := map[*modelGroup]int64{}
	for _, g := range w.groups {
		if g.real != nil {
			room[g] = max(g.real.capacity, g.real.waiting())
		}
	}
	batch := batchOf(posts...)
	publishBatch(w.t, w.b, batch)
	var accepted []string
	i := 0
	for _, r := range batch.Runs {
		w.note("publish %d on %s: %d accepted, %v", r.Count, r.Topic, r.Accepted, r.Err)
		for _, p := range posts[i : i+r.Accepted] {
			accepted = append(accepted, p.payload)
			for _, g := range w.groups {
				g.published(p)
			}
		}
		i += r.Count
	}
	wantPayloads(w.t, takeAll(w.watcher), accepted)
	for g, most := range room {
		if n := g.real.waiting(); n > most {
			w.t.Errorf("%s: %d messages wait after a publish, room was for %d", g.name, n, most)
		}
	}
}

func modelID(payload string) int {
	id, _, _ := strings.Cut(payload, ":")
	n, err := strconv.Atoi(id)
	if err != nil {
		panic(err)
	}
	return n
}

func (g *modelGroup) published(p post) {
	if g.real == nil {
		return
	}
	for name := range g.lanes {
		if set, _ := ParsePatterns(strings.Split(name, "\n")); set.Match(p.topic) {
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
	list := records(d)
	g.note("%s: %p takes %d from %d on, attempt %d", g.name, m.real, len(list), d.FirstSequence, d.Attempt)
	if d.FirstSequence != m.sequence+1 {
		g.t.Errorf("delivery begins with %d after %d", d.FirstSequence, m.sequence)
	}
	m.delivery, m.since = d, time.Now()
	inFlight := len(g.flights(m, 0, math.MaxUint64))
	for _, payload := range list {
		m.sequence++
		inFlight++
		g.deliver(m, modelID(payload), d.Attempt, before)
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

func (g *modelGroup) deliver(m *modelMember, id, attempt int, before map[int]position) {
	x := g.messages[id]
	switch {
	case x == nil:
		g.t.Fatalf("%s: message %d is delivered, which is not in the group", g.name, id)
	case x.holder != nil:
		g.t.Errorf("%s: message %d is delivered twice at once", g.name, id)
	case !m.patterns.Match(x.topic):
		g.t.Errorf("%s: message %d on %s goes to a member for %q", g.name, id, x.topic, m.patterns.Strings())
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
	g.judgeOrder(m, x, before)
	if x.attempt > 0 {
		g.redelivered++
	}
	g.delivered++
	x.attempt++
	x.holder, x.sequence, x.due = m, m.sequence, time.Time{}
}

// judgeOrder: a key's messages come in order and to one member; without a key, what waits in a lane comes in order.
func (g *modelGroup) judgeOrder(m *modelMember, x *modelMessage, before map[int]position) {
	for _, y := range g.messages {
		switch {
		case y == x:
		case x.key != "" && y.key == x.key && y.holder != nil && y.holder != m:
			g.t.Errorf("%s: messages %d and %d of key %s are at two members", g.name, x.id, y.id, x.key)
		case x.key != "" && y.key == x.key && y.holder == nil && y.id < x.id:
			g.t.Errorf("%s: message %d of key %s comes before message %d", g.name, x.id, x.key, y.id)
		case x.key == "" && y.key == "" && y.holder == nil && y.id < x.id:
			px, py := before[x.id], before[y.id]
			if px.where == "lane" && py.where == "lane" && px.lane == py.lane && px.suspect == py.suspect {
				g.t.Errorf("%s: message %d comes before message %d of the same lane", g.name, x.id, y.id)
			}
		}
	}
}

// written settles the delivery under way.
func (g *modelGroup) written(m *modelMember, ok bool) {
	d := m.delivery
	m.delivery = nil
	flights := g.flights(m, d.FirstSequence, d.FirstSequence+uint64(d.Count)-1)
	g.note("%s: %p has written %d from %d on: %v", g.name, m.real, d.Count, d.FirstSequence, ok)
	m.real.Settle(d, ok)
	for _, x := range flights {
		switch {
		case !ok:
			g.giveBack(x, false, time.Time{})
		case g.settings.Ack == AckNone:
			g.acked++
			delete(g.messages, x.id)
		case x.deadline.IsZero() && *g.settings.AckDeadline > 0:
			x.deadline = time.Now().Add(*g.settings.AckDeadline)
		}
	}
	g.freed(m)
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
	x.holder, x.sequence, x.deadline, x.due = nil, 0, time.Time{}, due
}

func (g *modelGroup) bury(x *modelMessage) {
	g.dead++
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
		if d == 0 {
			d = *g.settings.AckDeadline
		}
		g.apply(m, ranges, func(x *modelMessage) {
			x.deadline = time.Time{}
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
	name := laneName(m.patterns, nil)
	if !slices.ContainsFunc(g.members, func(o *modelMember) bool { return laneName(o.patterns, nil) == name }) {
		g.lanes[name] = time.Now().Add(g.b.options.GroupLinger)
	}
	if len(g.members) == 0 {
		g.linger = time.Now().Add(g.b.options.GroupLinger)
	}
	synctest.Wait()
}

// sleep lets time go by, stopping wherever something becomes due.
func (w *groupWorld) sleep(d time.Duration) {
	until := time.Now().Add(d)
	w.note("sleep %v", d)
	for {
		next := until
		for _, g := range w.groups {
			next = g.earliest(next)
		}
		time.Sleep(time.Until(next))
		synctest.Wait()
		for _, g := range w.groups {
			g.due()
		}
		if !next.Before(until) {
			return
		}
		w.check()
	}
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
			consider(m.since.Add(g.b.options.SendTimeout))
		}
	}
	for _, at := range g.lanes {
		consider(at)
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
			g.expired++
			g.giveBack(x, true, time.Time{})
			g.freed(m)
		}
		if !x.due.After(now) {
			x.due = time.Time{}
		}
	}
	for _, m := range slices.Clone(g.members) {
		if m.delivery != nil && !m.since.Add(g.b.options.SendTimeout).After(now) {
			if m.real.Ending().Reason != EndStalled {
				g.t.Errorf("%s: a member that takes nothing goes on", g.name)
			}
			g.ended(m, false)
		}
	}
	if len(g.members) > 0 {
		maps.DeleteFunc(g.lanes, func(_ string, at time.Time) bool { return !at.IsZero() && !at.After(now) })
	}
	if g.real != nil && !g.linger.IsZero() && !g.linger.After(now) {
		if slices.Contains(g.b.allGroups(), g.real) {
			g.t.Errorf("%s: the linger is over and the group goes on", g.name)
		}
		g.real, g.messages, g.lanes, g.linger = nil, nil, nil, time.Time{}
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
		g.due() // what was due at once
		if g.real != nil {
			g.checkBooks(g.checkMessages())
		}
	}
	if w.t.Failed() {
		w.t.FailNow()
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
		if !p.lane.patterns.Match(x.topic) {
			g.t.Errorf("%s: message %d on %s is in the lane of %q", g.name, id, x.topic, p.lane.name)
		}
		if g.real.lanes[p.lane.name] != p.lane {
			g.t.Errorf("%s: message %d is in a lane that is gone", g.name, id)
		}
		// Where a great many wait, only the oldest are looked at.
		if l := p.lane; pos.where == "lane" && len(l.members) > 0 && l.spare() < 0 && l.shared < fewLooks/4 {
			for _, other := range g.real.lanes {
				if other != l && other.patterns.Match(x.topic) && other.spare() > 0 {
					g.t.Errorf("%s: message %d waits in lane %q, which is short of %d, while %q could take %d", g.name, id, l.name, -l.spare(), other.name, other.spare())
				}
			}
		}
		if len(p.lane.members) == 0 {
			if pos.where != "lane" && !p.lane.aside {
				g.t.Errorf("%s: message %d waits aside for a lane without members, which does not know", g.name, id)
			}
			for _, l := range g.real.lanes {
				if len(l.members) > 0 && l.patterns.Match(x.topic) {
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
		ready, shared, parked := 0, 0, 0
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
			if m.inFlight == 0 && m.alone {
				g.t.Errorf("%s: %p keeps alone for nothing", g.name, m)
			}
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
		if st.inFlight == 0 && st.holder != nil || st.inFlight > 0 && (st.holder == nil || st.inLane) {
			g.t.Errorf("%s: key %q: %+v", g.name, name, st)
		}
		if st.holder != nil && st.next(st.holder) != nil && (!st.held || !slices.Contains(st.holder.held, st)) {
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
		for _, st := range m.held {
			something = something || st.held && st.next(m) != nil
		}
		if something {
			g.t.Errorf("%s: %p sleeps, %d others are awake for %d messages; %d keys", g.name, m, awake, l.ready, len(m.held))
		}
	}
}
