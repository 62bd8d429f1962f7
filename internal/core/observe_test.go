package core

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func observe(t testing.TB, b *Broker, q Query) *Snapshot {
	t.Helper()
	snap, err := b.Observe(q)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// stand makes a broker with a broadcast of five topics, a group of three and an eviction.
func stand(t testing.TB) *Broker {
	b := newBroker(t, nil)
	all := subscribe(t, b, SubscribeOptions{ID: "all", Client: "dashboard", Patterns: []string{"**"}})
	subscribe(t, b, SubscribeOptions{ID: "slow", Client: "billing", Patterns: []string{"news.3"}, Capacity: 100})
	doomed := subscribe(t, b, SubscribeOptions{ID: "doomed", Client: "frozen", Peer: "10.0.0.7:1", Patterns: []string{"news.**"}, Capacity: 10})
	var members []*Member
	for i := range 3 {
		members = append(members, join(t, b, JoinOptions{ID: fmt.Sprintf("m%d", i), Patterns: []string{"job.*"}, MaxInFlight: 10}))
	}
	for i := range 5 {
		publish(t, b, numbered(fmt.Sprintf("news.%d", i), 0, 20*(i+1))...)
	}
	publish(t, b, numbered("job.a", 0, 30)...)
	wantEnded(t, doomed, EndEvicted, 20)
	takeAll(all)
	for i, m := range members {
		_, last := takeEverything(m)
		m.Ack(SequenceRange{1, last.first + uint64(i)})
	}
	return b
}

// The number of topics is that of the rows, from the first message on, while samples are taken or not, and when idle topics are forgotten.
func TestTopicsAreCountedAtOnce(t *testing.T) {
	b := newBroker(t, nil)
	agree := func(least, most int) {
		t.Helper()
		snap := observe(t, b, Query{View: ViewTopics, Limit: 1})
		if n := snap.Broker.Topics; n != snap.Rows.Topics || n < least || n > most {
			t.Errorf("%d topics, %d rows, want %d to %d", n, snap.Rows.Topics, least, most)
		}
	}
	agree(0, 0)
	subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.**"}}) // the broker's own topics are not counted
	subscribe(t, b, SubscribeOptions{Patterns: []string{"nothing"}})
	publish(t, b, post{topic: "one"}, post{topic: "one"})
	agree(1, 1)
	publish(t, b, post{topic: "one"}, post{topic: "two"})
	agree(2, 2)
	for i := range 2 * routeShards * shardRoutes {
		publish(t, b, post{topic: fmt.Sprint("many.", i)})
	}
	agree(routeShards*shardRoutes/2, routeShards*shardRoutes)
}

func TestSnapshotsHoldWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		b := stand(t)
		time.Sleep(time.Until(begun.Add(time.Second)))
		b.Sample()
		snap := observe(t, b, Query{View: ViewAll})
		var in, out uint64
		for _, topic := range snap.Topics {
			in += topic.InMsgs
			out += topic.OutMsgs
		}
		if in != 330 || in != snap.Broker.Published || out != 330+80+30+10 {
			t.Errorf("topics: %d in, %d out; published %d", in, out, snap.Broker.Published)
		}
		if first := snap.Topics[0]; first.Topic != "news.4" || first.In.Second != 100 || first.Subscriptions != 1 {
			t.Errorf("busiest topic: %+v", first)
		}
		if snap.Rates.In.Second != 330 || snap.Rates.In.Minute != 330 {
			t.Errorf("the broker's rates: %+v", snap.Rates)
		}
		if len(snap.Subscriptions) != 5 || snap.Subscriptions[0].ID != "slow" || snap.Subscriptions[0].Queued != 80 || snap.Subscriptions[0].State != StateLagging {
			t.Errorf("fullest queue: %+v", snap.Subscriptions[0])
		}
		g := snap.Groups[0]
		if g.Accepted != 30 || g.Accepted != g.Acked+uint64(g.Pending+g.InFlight)+g.Dropped+g.DeadLetters || g.Members != 3 {
			t.Errorf("group: %+v", g)
		}
		var acked uint64
		var share float64
		inFlight := 0
		for _, m := range snap.Members {
			acked += m.Acked
			inFlight += m.InFlight
			share += m.Share
		}
		if acked != g.Acked || inFlight != g.InFlight || share < 0.999 || share > 1.001 {
			t.Errorf("members: %d acked, %d in flight, shares sum up to %v; group %+v", acked, inFlight, share, g)
		}
		if len(snap.Evictions) != 1 {
			t.Fatalf("evictions: %+v", snap.Evictions)
		}
		if e := snap.Evictions[0]; e.ID != "doomed" || e.Client != "frozen" || e.Peer != "10.0.0.7:1" || e.Lost != 20 || e.Reason != "evicted" || !slices.Equal(e.Patterns, []string{"news.**"}) {
			t.Errorf("eviction: %+v", e)
		}
		var delivered uint64
		for _, s := range snap.Subscriptions {
			delivered += s.Delivered
		}
		if delivered != snap.Broker.Delivered {
			t.Errorf("subscriptions say %d delivered, the broker %d", delivered, snap.Broker.Delivered)
		}
	})
}

// What is done without an ack is its member's, too: the shares tell who does the work.
func TestSharesWithoutAcks(t *testing.T) {
	b := newBroker(t, nil)
	members := waiting(t, b, 2, AckNone)
	publish(t, b, numbered("t", 0, 40)...)
	for _, m := range members {
		takeEverything(m)
	}
	done := groupStats(t, b, "g").Acked
	var acked uint64
	for _, m := range observe(t, b, Query{View: ViewMembers}).Members {
		acked += m.Acked
		if m.Acked == 0 || m.Acked != m.Delivered || m.Share != float64(m.Acked)/float64(done) || !m.LastAck.IsZero() {
			t.Errorf("member: %+v", m)
		}
	}
	if acked != done {
		t.Errorf("the members have done %d, the group %d", acked, done)
	}
}

// Whoever gives everything back has acknowledged nothing, nor has who names what is not in flight.
func TestLastAckIsOfAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		publish(t, b, numbered("t", 0, 3)...)
		takeEverything(m)
		last := func() time.Time { return observe(t, b, Query{View: ViewMembers}).Members[0].LastAck }
		m.Nack(Nack{Action: NackReject}, SequenceRange{1, 1})
		m.Nack(Nack{Action: NackRelease}, SequenceRange{2, 2})
		m.Ack(SequenceRange{100, 200})
		if at := last(); !at.IsZero() {
			t.Errorf("nothing was acknowledged, and it was %v", at)
		}
		time.Sleep(time.Second)
		m.Ack(SequenceRange{3, 3})
		if at := last(); !at.Equal(time.Now()) {
			t.Errorf("acknowledged %v, and it is %v", at, time.Now())
		}
		b.Close()
	})
}

func TestRatesUseTheTimeThatHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		step := func(n int, pause time.Duration) Rates {
			publish(t, b, numbered("t", 0, n)...)
			time.Sleep(pause)
			b.Sample()
			return observe(t, b, Query{}).Rates.In
		}
		if r := observe(t, b, Query{}).Rates.In; r != (Rates{}) {
			t.Errorf("before the first sample: %+v", r)
		}
		if r := step(1000, time.Second); r.Second != 1000 || r.Minute != 1000 {
			t.Errorf("after a second: %+v", r)
		}
		if r := step(1000, 10*time.Second); r.Second != 100 || r.Minute < 181 || r.Minute > 182 {
			t.Errorf("after a late sample: %+v", r)
		}
		for range 60 {
			step(60, time.Second)
		}
		if r := step(60, time.Second); r.Second != 60 || r.Minute != 60 {
			t.Errorf("after a minute: %+v", r)
		}
		snap := observe(t, b, Query{View: ViewTopics})
		if h := snap.Topics[0].History; len(h) != 60 || h[0] != 60 {
			t.Errorf("history: %v", h)
		}
		for range 61 {
			step(0, time.Second)
		}
		snap = observe(t, b, Query{View: ViewTopics})
		if r := snap.Topics[0].In; r != (Rates{}) {
			t.Errorf("a topic at rest: %+v", r)
		}
	})
}

func TestQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		b := stand(t)
		time.Sleep(time.Until(begun.Add(time.Second)))
		b.Sample()
		topics := func(q Query) (names []string) {
			q.View = ViewTopics
			for _, row := range observe(t, b, q).Topics {
				names = append(names, row.Topic)
			}
			return names
		}
		for _, c := range []struct {
			q    Query
			want string
		}{
			{Query{}, "news.4 news.3 news.2 news.1 job.a news.0"},
			{Query{Sort: "in", Reverse: true}, "news.0 job.a news.1 news.2 news.3 news.4"},
			{Query{Sort: "topic"}, "job.a news.0 news.1 news.2 news.3 news.4"},
			{Query{Sort: "groups"}, "job.a news.0 news.1 news.2 news.3 news.4"},
			{Query{Filter: "JOB"}, "job.a"},
			{Query{Limit: 2}, "news.4 news.3"},
			{Query{Filter: "nothing"}, ""},
		} {
			if got := strings.Join(topics(c.q), " "); got != c.want {
				t.Errorf("%+v: %s, want %s", c.q, got, c.want)
			}
		}
		snap := observe(t, b, Query{View: ViewSubscriptions, Limit: 1})
		if len(snap.Subscriptions) != 1 || snap.Rows.Subscriptions != 5 {
			t.Errorf("%d of %d rows, want 1 of 5", len(snap.Subscriptions), snap.Rows.Subscriptions)
		}
		if n := len(observe(t, b, Query{View: ViewSubscriptions, Topic: "news.3"}).Subscriptions); n != 2 {
			t.Errorf("%d subscriptions receive news.3, want 2", n)
		}
		if n := len(observe(t, b, Query{View: ViewSubscriptions, Group: "g"}).Subscriptions); n != 3 {
			t.Errorf("%d subscriptions of the group, want 3", n)
		}
		if n := len(observe(t, b, Query{View: ViewMembers, ID: "", Group: "none"}).Members); n != 0 {
			t.Errorf("%d members of a group that is not there", n)
		}
		for _, q := range []Query{{View: 99}, {View: -1}, {Limit: -1}, {View: ViewTopics, Sort: "lost"}, {Sort: "in"}} {
			if _, err := b.Observe(q); !errors.Is(err, ErrProtocol) {
				t.Errorf("%+v: %v, want ErrProtocol", q, err)
			}
		}
		for v := ViewTopics; v <= ViewEvictions; v++ {
			for _, column := range SortColumns(v) {
				observe(t, b, Query{View: v, Sort: column})
			}
		}
	})
}

func TestCloseSubscription(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{ID: "s", Patterns: []string{"**"}})
	m := join(t, b, JoinOptions{ID: "m"})
	publish(t, b, post{topic: "t", payload: "x"})
	for _, id := range []string{"s", "m"} {
		if err := b.CloseSubscription(id); err != nil {
			t.Fatal(err)
		}
	}
	wantEnded(t, s, EndKicked, 1)
	if r := m.Ending().Reason; r != EndKicked {
		t.Errorf("the member ended as %s", r)
	}
	if err := b.CloseSubscription("s"); !errors.Is(err, ErrNotFound) {
		t.Errorf("closing it again: %v", err)
	}
}

// A million topics leave a bounded number of rows and the busy one among them.
func TestTopicChurnIsBoundedAndKeepsTheBusyOnes(t *testing.T) {
	b := newBroker(t, nil)
	for i := range 200_000 {
		publish(t, b, post{topic: fmt.Sprintf("u.%d", i), payload: "x"})
		if i%10 == 0 {
			publish(t, b, post{topic: "busy", payload: "x"})
		}
	}
	snap := observe(t, b, Query{View: ViewTopics, Sort: "out", Limit: 1})
	if snap.Rows.Topics > routeShards*shardRoutes {
		t.Errorf("%d topics are followed, want at most %d", snap.Rows.Topics, routeShards*shardRoutes)
	}
	busy := observe(t, b, Query{View: ViewTopics, Filter: "busy"}).Topics
	if len(busy) != 1 || busy[0].InMsgs != 20_000 {
		t.Errorf("the busy topic among many: %+v", busy)
	}
}

// What is remembered of topics stays small while they come and go, at the worst moment too: all of them have been heard and
// sampled within the last minute.
func TestTopicChurnLeavesLittleMemory(t *testing.T) {
	clock := newFakeClock()
	b := newBroker(t, func(o *Options) { o.Clock = clock })
	all := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	before := heapInUse()
	for i := range 150_000 {
		publish(t, b, post{topic: fmt.Sprintf("user.%036d.seen", i), payload: "x"})
		if i%10_000 == 0 {
			takeAll(all)
			clock.advance(time.Second)
			b.Sample()
		}
	}
	takeAll(all)
	if grown := int64(heapInUse()) - int64(before); grown > 32<<20 {
		t.Errorf("%d bytes more than before", grown)
	}
	runtime.KeepAlive(b)
}

// An overview has each queue once: a group's, not that of each member. And what a question narrows down holds for members too.
func TestOverviewAndMembersByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stand(t)
		snap := observe(t, b, Query{View: ViewOverview})
		if len(snap.Subscriptions) != 2 || len(snap.Groups) != 1 || len(snap.Members) != 0 || len(snap.Topics) != 6 || len(snap.Evictions) != 1 {
			t.Errorf("overview: %d subscriptions, %d groups, %d members, %d topics, %d evictions",
				len(snap.Subscriptions), len(snap.Groups), len(snap.Members), len(snap.Topics), len(snap.Evictions))
		}
		members := observe(t, b, Query{View: ViewMembers, ID: "m1"}).Members
		if len(members) != 1 || members[0].ID != "m1" {
			t.Errorf("members of the id m1: %+v", members)
		}
	})
}

func TestEvictionsTellWhatWaited(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{ID: "s", Patterns: []string{"t"}, Capacity: 10})
	batch := batchOf(numbered("t", 10, 7)...)
	publishBatch(t, b, batch)
	publish(t, b, numbered("t", 0, 4)...)
	wantEnded(t, s, EndEvicted, 11)
	e := observe(t, b, Query{View: ViewEvictions}).Evictions[0]
	if e.Queued != 7 || e.QueuedBytes != int64(len(batch.Data)) || e.Lost != 11 {
		t.Errorf("%d messages of %d bytes waited, %d lost; want 7 of %d, 11", e.Queued, e.QueuedBytes, e.Lost, len(batch.Data))
	}
}

// A thousand rows with the most patterns that there may be are no burden: whoever may subscribe would else make each snapshot, and what is
// remembered of evictions, sixty megabytes. Asked for by its id, one shows all. A filter sees all, too.
func TestManyPatternsAreCut(t *testing.T) {
	b := newBroker(t, nil)
	var patterns []string
	for i := range 100 {
		patterns = append(patterns, fmt.Sprintf("%s.%03d", strings.Repeat("p", 500), i))
	}
	patterns = append([]string{"t"}, patterns...)
	s := subscribe(t, b, SubscribeOptions{ID: "s", Patterns: patterns, Capacity: 1})
	m, err := b.Join(JoinOptions{ID: "m", Group: "g", Patterns: patterns[1:]})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	check := func(what string, got []string) {
		t.Helper()
		bytes := len(strings.Join(got, ""))
		if last := len(got) - 1; last < 1 || got[last] != "…" || bytes > 5000 || bytes < 3000 || !slices.Equal(got[:last], patterns[:last]) && !slices.Equal(got[:last], patterns[1:last+1]) {
			t.Errorf("%s: %d patterns, %d bytes", what, len(got), bytes)
		}
	}
	snap := observe(t, b, Query{View: ViewAll, Filter: ".099"})
	if len(snap.Subscriptions) != 2 || len(snap.Members) != 1 {
		t.Fatalf("%d subscriptions, %d members", len(snap.Subscriptions), len(snap.Members))
	}
	check("subscription", snap.Subscriptions[0].Patterns)
	check("member's subscription", snap.Subscriptions[1].Patterns)
	check("member", snap.Members[0].Patterns)
	if got := observe(t, b, Query{View: ViewSubscriptions, ID: "s"}).Subscriptions[0].Patterns; !slices.Equal(got, patterns) {
		t.Errorf("by its id: %d patterns", len(got))
	}
	if got := observe(t, b, Query{View: ViewMembers, ID: "m"}).Members[0].Patterns; !slices.Equal(got, patterns[1:]) {
		t.Errorf("member by its id: %d patterns", len(got))
	}
	if !slices.Equal(s.Patterns(), patterns) {
		t.Error("the subscription has lost some")
	}
	publish(t, b, numbered("t", 0, 3)...)
	wantEnded(t, s, EndEvicted, 3)
	check("eviction", observe(t, b, Query{View: ViewEvictions}).Evictions[0].Patterns)
}

// A subscription that takes nothing though messages wait is stalled, however empty its queue; one that takes is not.
func TestStalledSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
		state := func() string { return observe(t, b, Query{View: ViewSubscriptions}).Subscriptions[0].State }
		step := func() {
			time.Sleep(time.Second)
			b.Sample()
		}
		step()
		publish(t, b, numbered("t", 0, 3)...)
		for range 2 {
			if got := state(); got != StateActive {
				t.Errorf("state %s, want active: the messages may be quite new", got)
			}
			step()
		}
		if got := state(); got != StateStalled {
			t.Errorf("state %s after two samples, want stalled", got)
		}
		takeAll(s)
		if got := state(); got != StateActive {
			t.Errorf("state %s once everything is taken, want active", got)
		}
		for range 5 { // busy: something waits at every sample, but never the same
			publish(t, b, numbered("t", 0, 3)...)
			step()
			if got := state(); got != StateActive {
				t.Errorf("state %s of a busy one, want active", got)
			}
			takeAll(s)
		}
	})
}

// A topic at rest shows who would receive it now, not who did when it was last published to.
func TestTopicsShowPresentReceivers(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
	publish(t, b, numbered("t", 0, 1)...)
	for _, q := range []Query{{View: ViewTopics}, {View: ViewTopics, Sort: "subs"}, {View: ViewOverview}} {
		if got := observe(t, b, q).Topics[0]; got.Subscriptions != 1 || got.Groups != 0 {
			t.Fatalf("%+v: %d subscriptions, %d groups; want 1, 0", q, got.Subscriptions, got.Groups)
		}
	}
	s.Close()
	join(t, b, JoinOptions{Patterns: []string{"*"}})
	subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
	subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	for _, q := range []Query{{View: ViewTopics, Sort: "groups"}, {View: ViewTopics}} {
		if got := observe(t, b, q).Topics[0]; got.Subscriptions != 2 || got.Groups != 1 || got.InMsgs != 1 {
			t.Errorf("%+v: %+v; want 2 subscriptions, 1 group", q, got)
		}
	}
}
