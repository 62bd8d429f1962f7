package core

import (
	"flag"
	"fmt"
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

// groupWorld is one broker with two groups, a broadcast subscription and one for dead letters, and their models.
type groupWorld struct {
	t        *testing.T
	rng      *rand.Rand
	b        *Broker
	watcher  *Subscription
	letters  *Subscription
	buried   []string // dead letters that are to come, see modelLetter
	groups   []*modelGroup
	holds    []modelHold // what the transport has not written
	next     int         // id of the next message
	busy     int         // publishes in 20 steps
	keyed    int         // messages with a key, of 4
	kinds    int         // of patterns that members have
	allowed  int         // of permissions
	waste    int         // bytes that frames have beside the groups' messages, at most
	slow     int         // deliveries of 4 that the transport takes its time to write
	drainAt  int         // the step at which the broker drains; 0: never
	draining bool
	cutOff   time.Time
	log      []string
}

var (
	groupModelTopics   = []string{"job.a", "job.b", "job.c.d", "other"}
	groupModelAllowed  = []*Permission{nil, mustAllow("job.**", "other"), mustAllow("**.a", "other")}
	groupModelPatterns = [][]string{{"job.*"}, {"job.a"}, {"job.**", "!job.b"}, {"job.b", "other"}, {"**"}}
)

func mustAllow(patterns ...string) *Permission {
	p, err := NewPermission(patterns, nil)
	if err != nil {
		panic(err)
	}
	return p
}

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
	w := &groupWorld{
		t:       t,
		rng:     rng,
		busy:    []int{1, 3, 6}[rng.IntN(3)],
		keyed:   rng.IntN(4),
		kinds:   []int{1, 2, 5}[rng.IntN(3)],
		allowed: []int{1, 1, 3}[rng.IntN(3)],
		waste:   []int{0, 20_000, 600_000}[rng.IntN(3)],
		slow:    rng.IntN(4),
		drainAt: max(0, rng.IntN(2**groupSteps)-*groupSteps),
	}
	w.b = newBroker(t, func(o *Options) {
		o.GroupCapacity = []int{3, 12, 50, 1000}[rng.IntN(4)]
		o.GroupCapacityBytes = []int64{1 << 10, 1 << 12, 1 << 20}[rng.IntN(3)]
		o.GroupLinger = []time.Duration{0, 5 * time.Second, time.Minute}[rng.IntN(3)]
		o.ConsumerCapacity = 1 << 16
		if w.waste > 0 {
			o.MaxMemory = 1 << 20
		}
	})
	w.watcher = subscribe(t, w.b, SubscribeOptions{Patterns: []string{"**"}})
	w.letters = subscribe(t, w.b, SubscribeOptions{Patterns: []string{"$tb.dlq.*"}})
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
	for i := range steps {
		if i > 0 && i == w.drainAt {
			w.drain()
		} else {
			w.step()
		}
		w.check()
	}
	w.settleAll()
	for _, g := range w.groups {
		for len(g.members) > 0 {
			g.end(g.members[0], g.members[0].real.Close)
		}
	}
	for len(w.holds) > 0 {
		w.writeOut()
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
	if len(w.holds) > 0 && w.rng.IntN(8) == 0 {
		w.writeOut()
		return
	}
	if !w.draining && (len(g.members) == 0 || w.rng.IntN(15) == 0 && len(g.members) < 6) {
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

// drain has the broker stop; some of what is delayed may come too late for that.
func (w *groupWorld) drain() {
	w.draining = true
	if after := []time.Duration{0, time.Second, 20 * time.Second}[w.rng.IntN(3)]; after > 0 {
		w.cutOff = time.Now().Add(after)
	}
	w.note("drain until %v", w.cutOff)
	w.b.Drain(w.cutOff)
}

func (w *groupWorld) publish() {
	if w.draining {
		return
	}
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
	if w.waste > 0 {
		posts = append(posts, post{topic: "nobody", payload: strconv.Itoa(w.next) + ":" + strings.Repeat("x", w.rng.IntN(w.waste))})
		w.next++
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
