//go:build unix

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// TestSoak has publishers, subscribers and members of groups work while everything goes wrong that can: processes are killed
// and stopped, connections are reset, cut and swallowed, readers are slow, the broker is restarted. It goes on in rounds: a storm,
// then a calm in which everybody comes back. Then the judges compare what came with what was sent, the broker's counters have to agree with
// an exact piece of work, and its descriptors, threads and memory have to be what they were.
//
// TINYBROKER_SOAK says for how long (1m); without it the test is skipped. TINYBROKER_SOAK_SEED repeats a choice of faults;
// the seed is printed. Every other seed has TLS, with certificates that are exchanged; TINYBROKER_SOAK_TLS=0 or 1 decides.
func TestSoak(t *testing.T) {
	value := os.Getenv("TINYBROKER_SOAK")
	if value == "" {
		t.Skip("TINYBROKER_SOAK does not say for how long")
	}
	length, err := time.ParseDuration(value)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TINYBROKER_SOAK_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	s := newSoak(t, seed)
	s.populate()
	s.calm() // everybody is there
	began := time.Now()
	for round := 1; time.Since(began) < length && !t.Failed(); round++ {
		s.storm(round)
		s.calm()
		t.Logf("round %d: %s", round, s.report())
	}
	t.Logf("faults: %s", s.tally())
	s.finish()
}

const (
	soakSharedTopic = "soak.shared"
	soakFullTopic   = "soak.full"
	// soakExact is how many messages each publisher sends while nothing goes wrong, to compare counters with.
	soakExact = 30
	// soakKeys is how many keys there are, for each member that fails messages.
	soakKeys = 2 * 20
)

// soak is everybody who takes part.
type soak struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand // of the goroutine that does the damage
	dir  string
	tls  *soakTLS

	b      *soakBroker
	client *rpc.Client // past all faults
	direct string      // address of the broker
	links  []*soakLink

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	told   atomic.Int64 // how many defects
	atRest atomic.Bool
	restMu sync.Mutex
	rest   chan struct{} // closed while at rest

	sendersMu sync.Mutex
	senders   map[string]*soakSender

	publishers []*soakPublisher
	listeners  []*soakListener
	members    []*soakMember
	printers   []*soakPrinter
	books      []*soakBook
	letters    *soakLetters
	clients    []*rpc.Client
	processes  int

	stops       []soakStop
	faults      map[string]int
	baseline    processState
	atRestFirst int // goroutines of the broker when all were there, and at rest, for the first time
	sums        soakSums
}

// soakSums are what the soak has seen, over all rounds.
type soakSums struct {
	sent, refused, doubtful int
	received, handled       int
	doubles, lost           int
	evictions               int
	dropped                 uint64
	letters                 int
}

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), tls: newSoakTLS(t, seed),
		senders: map[string]*soakSender{}, faults: map[string]int{}, rest: make(chan struct{}),
	}
	s.setRest(true)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.startBroker()
	var err error
	if s.client, err = rpc.Dial(t.Context(), s.tls.options(rpc.ClientOptions{Target: s.direct})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.client.Close() })
	s.stats()
	s.baseline = s.state()
	for range 20 { // what was there for the first call goes
		time.Sleep(20 * time.Millisecond)
		s.baseline = s.baseline.least(s.state())
	}
	return s
}

// startBroker starts a broker where the last one was.
func (s *soak) startBroker() {
	file, address := filepath.Join(s.t.TempDir(), "addr"), "127.0.0.1:0"
	if s.direct != "" {
		address = s.direct
	}
	s.b = &soakBroker{process: start(s.t, append([]string{
		"serve", "--listen", address, "--metrics-listen", "127.0.0.1:0", "--addr-file", file, "--group-linger", "20s", "--ack-deadline", "3s", "--send-timeout", "5s",
		"--max-attempts", "1000", "--max-memory", "64MiB",
	}, s.tls.serveArgs()...))}
	addresses := strings.Fields(waitFile(s.t, file)) // that of the metrics comes last
	s.direct, s.b.address, s.b.metrics = addresses[0], addresses[0], addresses[len(addresses)-1]
}

// fault reports a defect of the broker or its clients.
func (s *soak) fault(format string, args ...any) {
	s.t.Helper()
	if s.told.Add(1) <= 20 {
		s.t.Errorf(format, args...)
	}
}

func (s *soak) count(what string) { s.faults[what]++ }

func (s *soak) resting() <-chan struct{} {
	s.restMu.Lock()
	defer s.restMu.Unlock()
	return s.rest
}

func (s *soak) setRest(rest bool) {
	s.restMu.Lock()
	defer s.restMu.Unlock()
	switch was := s.atRest.Swap(rest); {
	case rest && !was:
		close(s.rest)
	case !rest && was:
		s.rest = make(chan struct{})
	}
}

// begun tells for every sender how many messages it has begun with.
func (s *soak) begun() map[string]int {
	s.sendersMu.Lock()
	defer s.sendersMu.Unlock()
	all := make(map[string]int, len(s.senders))
	for name, sender := range s.senders {
		all[name], _ = sender.counts()
	}
	return all
}

func (s *soak) fates() map[string]*soakFate {
	s.sendersMu.Lock()
	defer s.sendersMu.Unlock()
	all := make(map[string]*soakFate, len(s.senders))
	for name, sender := range s.senders {
		all[name] = sender.fate()
	}
	return all
}

func (s *soak) isPoison(sender string, n int) bool {
	s.sendersMu.Lock()
	defer s.sendersMu.Unlock()
	p := s.senders[sender]
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.poison[n]
}

func (s *soak) addSender(name string, topic func(n int) string) *soakSender {
	sender := newSoakSender(name, topic)
	s.sendersMu.Lock()
	defer s.sendersMu.Unlock()
	s.senders[name] = sender
	return sender
}

// stats asks the broker, which has to answer at once.
func (s *soak) stats() core.Snapshot {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	snapshot, err := s.client.Observe(ctx, core.Query{View: core.ViewAll, Limit: 1000})
	if err != nil {
		s.t.Fatalf("the broker does not answer: %v\n%s", err, s.b.stderr.String())
	}
	return *snapshot
}

// await waits for something of the calm. When it does not come, the broker tells what it sees.
func (s *soak) await(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if s.t.Failed() || time.Now().After(end) {
			snap := s.stats()
			s.askMissing(snap)
			s.t.Fatalf("never: %s\n%+v\n%+v\n%+v", what, snap.Broker, snap.Groups, snap.Subscriptions)
		}
	}
}

// askMissing makes processes that ought to be subscribed, and are not, say what they are doing.
func (s *soak) askMissing(snap core.Snapshot) {
	for _, p := range s.printers {
		if !slices.ContainsFunc(snap.Subscriptions, func(sub core.SubscriptionStats) bool { return sub.ID == p.id }) && !ended(p.process) {
			s.t.Logf("%s is missing: %s", p.id, stateOf(p.process))
			p.signal(syscall.SIGQUIT)
			p.process.end()
		}
	}
}

// calm ends all that goes wrong, waits until everybody is there and nothing is under way, and judges the round.
func (s *soak) calm() {
	s.setRest(true)
	for _, k := range s.links {
		k.heal()
	}
	for _, p := range s.printers {
		s.resume(p)
	}
	for _, p := range s.publishers {
		p.turn.Lock()
	}
	defer func() {
		for _, p := range s.publishers {
			p.turn.Unlock()
		}
	}()
	s.await("all is confirmed", func() bool {
		return !slices.ContainsFunc(s.publishers, func(p *soakPublisher) bool { return !p.settled() })
	})
	s.await("everybody subscribes, and nothing waits", s.settled)
	s.noteGroups()
	s.exactWork()
	s.judge()
	s.checkBroker()
	s.setRest(false)
}

// settled reports whether all are subscribed and the broker has nothing to do.
func (s *soak) settled() bool {
	snap := s.stats()
	var want []string
	for _, l := range s.listeners {
		want = append(want, l.id())
	}
	want = append(want, s.letters.id())
	for _, m := range s.members {
		want = append(want, m.options.ID)
	}
	for _, p := range s.printers {
		want = append(want, p.id)
	}
	var got []string
	for _, sub := range snap.Subscriptions {
		got = append(got, sub.ID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || snap.Broker.Memory != 0 || snap.Broker.QueuedMessages != 0 || len(snap.Groups) != len(s.books) {
		return false
	}
	return !slices.ContainsFunc(snap.Groups, func(g core.GroupStats) bool { return g.Pending != 0 || g.InFlight != 0 })
}

// exactWork sends some messages while nothing goes wrong, and wants every counter to agree to the message.
func (s *soak) exactWork() {
	before := s.stats()
	sent, full := 0, 0
	for range soakExact {
		for _, p := range s.publishers {
			p.sendOne(s.ctx, 60, false)
			sent++
			if p.topic(1) == soakFullTopic {
				full++
			}
		}
		time.Sleep(10 * time.Millisecond) // so that no queue overflows
	}
	last := map[string]int{}
	for _, p := range s.publishers {
		begun, _ := p.counts()
		last[p.name] = begun
	}
	s.await("all is confirmed", func() bool {
		return !slices.ContainsFunc(s.publishers, func(p *soakPublisher) bool { return !p.settled() })
	})
	for _, l := range s.listeners {
		s.await(l.id()+" has everything", func() bool { return l.hasCome(last) })
	}
	readers := len(s.listeners)
	for _, p := range s.printers {
		if p.book == nil {
			readers++
			s.await(p.id+" has printed everything", func() bool { return p.hasCome(last) })
		}
	}
	s.await("the groups have done everything", s.settled)
	after := s.stats()
	b, a := before.Broker, after.Broker
	groups := 0
	for _, g := range after.Groups {
		n := sent
		if g.Name == "full" {
			n = full
		}
		i := slices.IndexFunc(before.Groups, func(h core.GroupStats) bool { return h.Name == g.Name })
		was := before.Groups[i]
		s.wantSum("accepted by group "+g.Name, g.Accepted-was.Accepted, n)
		delivered := int(g.Delivered - was.Delivered)
		groups += delivered
		if again := delivered - n; g.Name == "keyed" && again > 0 && again <= soakKeys {
			// A member that has failed a message in the storm may give back the next one of its key once, not knowing that
			// another has dealt with the first.
			delivered = n
		}
		s.wantSum("delivered to group "+g.Name, uint64(delivered), n)
		s.wantSum("acknowledged by group "+g.Name, g.Acked-was.Acked, n)
		s.wantSum("delivered again to group "+g.Name, g.Redelivered-was.Redelivered, 0)
		s.wantSum("dropped by group "+g.Name, g.Dropped-was.Dropped, 0)
	}
	s.wantSum("published", a.Published-b.Published, sent)
	s.wantSum("delivered", a.Delivered-b.Delivered, sent*readers+groups)
	s.wantSum("unrouted", a.Unrouted-b.Unrouted, 0)
	s.wantSum("refused", a.Refused-b.Refused, 0)
	s.wantSum("dropped", a.Dropped-b.Dropped, 0)
	s.wantSum("lost", a.Lost-b.Lost, 0)
	s.wantSum("evicted", a.Evictions-b.Evictions, 0)
}

func (s *soak) wantSum(what string, got uint64, want int) {
	if got != uint64(want) {
		s.fault("the broker counts %d %s, but it was %d", got, what, want)
	}
}

// judge compares what came in this round with what was sent, and forgets both.
func (s *soak) judge() {
	fates := s.fates()
	begun := s.begun()
	var reference []soakMark
	hear := func(epochs []*soakEpoch, shared []soakMark) {
		for _, e := range epochs {
			s.tell(e.judge(fates))
			for _, numbers := range e.got {
				s.sums.received += len(numbers)
			}
		}
		if reference == nil {
			reference = shared
			return
		}
		s.tell(judgeSharedOrder(epochs[0].who, reference, shared, fates))
	}
	for _, l := range s.listeners { // the first one is disturbed by nobody
		hear(l.closeRound(begun))
	}
	for _, p := range s.printers {
		if p.poll(); p.book == nil {
			hear(p.closeRound(begun))
		}
	}
	for _, b := range s.books {
		g := b.closeRound()
		s.tell(g.judge(fates, s.stops))
		s.sums.handled += len(g.handled)
		s.sums.doubles += g.doubles
		s.sums.lost += g.lost
		s.tell(s.letters.judge(g, fates, s.stops))
	}
	snap := s.stats()
	s.tell(s.letters.count(snap.Groups, len(s.stops) > 0))
	s.letters.closeRound(&s.sums)
	for _, m := range s.members {
		m.renew()
	}
	for _, p := range s.printers {
		p.renew()
	}
	s.closeSenders(fates)
	s.stops = nil
}

// tell reports what the judges have found, without telling all when there is much.
func (s *soak) tell(faults []string) {
	for _, f := range faults[:min(len(faults), 3)] {
		s.fault("%s", f)
	}
	if len(faults) > 3 {
		s.fault("… and %d more", len(faults)-3)
	}
}

func (s *soak) closeSenders(fates map[string]*soakFate) {
	for _, f := range fates {
		s.sums.sent += f.begun - f.base
		s.sums.refused += len(f.refused)
		for n := f.base + 1; n <= f.begun; n++ {
			if f.doubtful(n) {
				s.sums.doubtful++
			}
		}
	}
	s.sendersMu.Lock()
	defer s.sendersMu.Unlock()
	for name, sender := range s.senders {
		if sender.gone {
			delete(s.senders, name)
			continue
		}
		sender.closeRound()
	}
}

// checkBroker looks at the process: it has said nothing terrible, and holds no more than it has to.
func (s *soak) checkBroker() {
	s.checkSaid()
	st := s.stats().Broker
	s.await("the descriptors are those of the connections", func() bool {
		return s.state().descriptors <= s.baseline.descriptors+s.stats().Broker.Connections
	})
	if s.atRestFirst == 0 {
		s.atRestFirst = s.state().goroutines
	}
	// Everybody is there, in every round as in the first.
	s.await("there are no more goroutines than at first", func() bool { return s.state().goroutines <= s.atRestFirst+6 })
	if st.Memory != 0 || st.QueuedMessages != 0 {
		s.fault("at rest the broker holds %d bytes, %d messages", st.Memory, st.QueuedMessages)
	}
}

func (s *soak) checkSaid() {
	said := s.b.stderr.String()
	for _, bad := range []string{"panic", "DATA RACE", "goroutine "} {
		if strings.Contains(said, bad) {
			s.t.Fatalf("the broker says %s:\n%s", bad, said)
		}
	}
}

// report says in a line what has been so far.
func (s *soak) report() string {
	u := &s.sums
	u.evictions, u.dropped = 0, 0
	for _, l := range s.listeners {
		l.mu.Lock()
		u.evictions += l.evictions
		u.dropped += l.dropped
		l.mu.Unlock()
	}
	return fmt.Sprintf("%d sent, %d refused, %d perhaps sent twice; %d received, %d handled; %d handled twice and %d lost by a violent end, as allowed; %d evictions, %d dropped and told, %d dead letters; broker %s",
		u.sent, u.refused, u.doubtful, u.received, u.handled, u.doubles, u.lost, u.evictions, u.dropped, u.letters, s.state())
}

// tally names the faults, the most frequent first.
func (s *soak) tally() string {
	names := slices.SortedFunc(maps.Keys(s.faults), func(a, b string) int { return s.faults[b] - s.faults[a] })
	var texts []string
	for _, name := range names {
		texts = append(texts, fmt.Sprintf("%s %d", name, s.faults[name]))
	}
	return strings.Join(texts, ", ")
}

// finish ends everybody and wants the broker to be as it was before they came.
func (s *soak) finish() {
	s.end()
	s.await("nothing is left", func() bool {
		st := s.stats()
		return st.Broker.Subscriptions == 0 && st.Broker.Groups == 0 && st.Broker.Connections == 1 && st.Broker.Memory == 0
	})
	room := 48 << 10
	if raceEnabled {
		room = 1 << 20 // the detector gives nothing back
	}
	s.await("descriptors, goroutines and memory are at the baseline", func() bool {
		now := s.state()
		return now.descriptors <= s.baseline.descriptors && now.goroutines <= s.baseline.goroutines && now.residentKB <= s.baseline.residentKB+room
	})
	end := s.state()
	s.t.Logf("the broker at first: %s; at the end: %s", s.baseline, end)
	s.client.Close()
	s.b.signal(syscall.SIGTERM)
	s.b.ended(0)
}

// end ends everybody. Calling it again does nothing.
func (s *soak) end() {
	if s.ctx.Err() != nil {
		return
	}
	for _, p := range s.printers {
		s.resume(p)
	}
	for _, k := range s.links {
		k.heal()
	}
	for _, p := range s.publishers {
		p.turn.Lock()
		p.way.end()
	}
	s.cancel()
	for _, p := range s.publishers {
		p.turn.Unlock()
	}
	for _, p := range s.printers {
		if !ended(p.process) {
			p.signal(syscall.SIGTERM)
			p.process.end()
		}
	}
	s.running.Wait()
	for _, c := range s.clients {
		c.Close()
	}
	s.ctx = context.Background()
}
