package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
)

func permission(t testing.TB, allow, deny []string) *Permission {
	t.Helper()
	p, err := NewPermission(allow, deny)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPermission(t *testing.T) {
	for _, test := range []struct {
		name        string
		allow, deny []string
		yes, no     []string
	}{
		{"equality is not a prefix", []string{"in.p", "in.p.*.data"}, nil,
			[]string{"in.p", "in.p.x.data"},
			[]string{"in.p.x", "in.p.x.y.data", "in.px", "in", "IN.P", "in.p.x.data.z", "xin.p", "in.p.data"}},
		{"deny wins", []string{"orders.**", "orders.secret.x"}, []string{"orders.secret.**"},
			[]string{"orders", "orders.a", "orders.secrets"}, []string{"orders.secret", "orders.secret.x", "orders.secret.x.y", "other"}},
		{"everything is not the broker's own", []string{"**"}, nil, []string{"a", "a.b"}, []string{"$tb.event.x", "$tb.dlq.g"}},
		{"nor is it denied by everything", []string{"$tb.dlq.g", "a"}, []string{"**"}, []string{"$tb.dlq.g"}, []string{"a", "$tb.dlq.h"}},
		{"some of the broker's own", []string{"$tb.**"}, []string{"$tb.event.**"}, []string{"$tb.dlq.g"}, []string{"$tb.event.x", "a"}},
		{"nothing", nil, nil, nil, []string{"a", "$tb.dlq.g", ""}},
		{"nothing, twice", nil, []string{"a"}, nil, []string{"a", "b"}},
		{"braces and classes", []string{"{a,b}.[0-9]"}, []string{"b.?"}, []string{"a.1"}, []string{"a.x", "b.1", "a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := permission(t, test.allow, test.deny)
			for want, names := range map[bool][]string{true: test.yes, false: test.no} {
				for _, name := range names {
					// Asked twice: the second answer is remembered.
					if p.Match(name) != want || p.Allows([]byte(name)) != want || p.Allows([]byte(name)) != want {
						t.Errorf("%q: want %v", name, want)
					}
				}
			}
		})
	}
	var all *Permission
	if !all.Match("a") || !all.Allows([]byte("$tb.x")) || all.Nothing() {
		t.Error("no permission does not allow everything")
	}
	if p := (&Permission{}); p.Match("a") || p.Allows([]byte("a")) || !p.Nothing() {
		t.Error("an empty permission allows something")
	}
}

func TestPermissionRefusesExclusions(t *testing.T) {
	for _, lists := range [][2][]string{{{"a", "!b"}, nil}, {{"a"}, {"!b"}}, {{"a.[b"}, nil}, {{"a"}, {""}}} {
		if p, err := NewPermission(lists[0], lists[1]); !errors.Is(err, ErrPatternInvalid) || p != nil {
			t.Errorf("%q: %v", lists, err)
		}
	}
}

func TestSamePermission(t *testing.T) {
	a := permission(t, []string{"x", "y"}, []string{"z"})
	for _, test := range []struct {
		other *Permission
		want  bool
	}{
		{permission(t, []string{"y", "x", "x"}, []string{"z"}), true},
		{permission(t, []string{"y", "x", "z"}, nil), false},
		{permission(t, []string{"y", "x"}, nil), false},
		{&Permission{}, false},
		{nil, false},
	} {
		if a.Same(test.other) != test.want || test.other.Same(a) != test.want {
			t.Errorf("%+v: want %v", test.other, test.want)
		}
	}
	if !(*Permission)(nil).Same(nil) {
		t.Error("nil differs from itself")
	}
}

// What is remembered is what Match says, also when more is asked about than is remembered, by many at once.
func TestRememberedVerdicts(t *testing.T) {
	p := permission(t, []string{"a.*"}, []string{"a.*7"})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 0))
			for range 20_000 {
				name := "a." + strconv.Itoa(rng.IntN(2000))
				if got := p.Allows([]byte(name)); got != (name[len(name)-1] != '7') {
					t.Errorf("%s: %v", name, got)
					return
				}
			}
		})
	}
	wg.Wait()
	name := []byte("a.1")
	p.Allows(name)
	if n := testing.AllocsPerRun(100, func() { p.Allows(name) }); n > 0 {
		t.Errorf("a remembered verdict allocates %v times", n)
	}
}

// A subscription that could receive nothing is refused; one that could receive something gets what it may.
func TestBarredSubscriptions(t *testing.T) {
	b := newBroker(t, nil)
	may := permission(t, []string{"a.*", "$tb.dlq.g"}, []string{"a.secret"})
	for _, test := range []struct {
		patterns []string
		ok       bool
	}{
		{[]string{"a.x"}, true},
		{[]string{"**"}, true},
		{[]string{"b.*"}, true}, // nothing will come of it, but that is not plain
		{[]string{"a.secret", "a.x"}, true},
		{[]string{"$tb.dlq.g"}, true},
		{[]string{"a.secret"}, false},
		{[]string{"b", "c.{d,e}"}, false},
		{[]string{"$tb.dlq.h"}, false},
	} {
		for who, may := range map[string]*Permission{"somebody": may, "nobody": {}} {
			s, err := b.Subscribe(SubscribeOptions{Patterns: test.patterns, Access: Access{who, may}})
			if want := test.ok && who == "somebody"; want != (err == nil) || !want && !errors.Is(err, ErrNotAllowed) {
				t.Errorf("%s, %q: %v", who, test.patterns, err)
			}
			if err == nil {
				s.Close()
			}
			m, err := b.Join(JoinOptions{Group: "g", Patterns: test.patterns, Access: Access{who, may}})
			if want := test.ok && who == "somebody"; want != (err == nil) || !want && !errors.Is(err, ErrNotAllowed) {
				t.Errorf("%s, %q as a member: %v", who, test.patterns, err)
			}
			if err == nil {
				m.Close()
			}
		}
	}
	if _, err := b.Subscribe(SubscribeOptions{Patterns: []string{"a.[x"}, Access: Access{"nobody", &Permission{}}}); !errors.Is(err, ErrPatternInvalid) {
		t.Errorf("a bad pattern: %v", err)
	}
}

// A name that is in use is taken over by its owner, and by nobody else.
func TestTakeoverByOthers(t *testing.T) {
	b := newBroker(t, nil)
	mine := subscribe(t, b, SubscribeOptions{ID: "x", Patterns: []string{"a"}, Access: Access{Identity: "me"}})
	for _, identity := range []string{"you", ""} {
		if _, err := b.Subscribe(SubscribeOptions{ID: "x", Patterns: []string{"a"}, Access: Access{Identity: identity}}); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("as %q: %v", identity, err)
		}
		if _, err := b.Join(JoinOptions{Group: "g", ID: "x", Patterns: []string{"a"}, Access: Access{Identity: identity}}); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("as %q, as a member: %v", identity, err)
		}
	}
	if e := mine.Ending(); e.Reason != EndNone {
		t.Fatalf("ended as %s", e.Reason)
	}
	if st := b.Stats(); st.Subscriptions != 1 {
		t.Errorf("%d subscriptions", st.Subscriptions)
	}
	subscribe(t, b, SubscribeOptions{ID: "x", Patterns: []string{"a"}, Access: Access{Identity: "me"}})
	wantEnded(t, mine, EndReplaced, 0)
}

// How a subscription was evicted is told to whose it was, and to nobody who asks for its id.
func TestEvictionsAreToldToTheirOwner(t *testing.T) {
	b := newBroker(t, nil)
	open := func(identity string) *Subscription {
		return subscribe(t, b, SubscribeOptions{ID: "x", Patterns: []string{"a"}, Capacity: 1, Overflow: OverflowEvict, Access: Access{Identity: identity}})
	}
	first := open("me")
	publishBatchNoGrace(b, batchOf(numbered("a", 0, 3)...))
	if e := first.Ending(); e.Reason != EndEvicted {
		t.Fatalf("ended as %s", e.Reason)
	}
	yours := open("you")
	if p := yours.Previous(); p != nil {
		t.Errorf("somebody else is told %+v", *p)
	}
	yours.Close()
	if p := open("me").Previous(); p == nil || p.Reason != EndEvicted {
		t.Errorf("told %+v", p)
	}
}

func TestRevoke(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}})
	publish(t, b, numbered("a", 0, 3)...)
	s.Revoke()
	wantEnded(t, s, EndRevoked, 3)
	var d Delivery
	if s.Take(&d, 1<<20) {
		t.Error("a revoked subscription delivers")
	}
	if r := publish(t, b, numbered("a", 3, 1)...); r[0].Receivers != 0 {
		t.Errorf("%d receivers", r[0].Receivers)
	}
}

// What a revoked member had goes to a member that may have it, as if it had not been delivered, and to no other.
func TestRevokedMember(t *testing.T) {
	b := newBroker(t, nil)
	join := func(may *Permission) *Member {
		m, err := b.Join(JoinOptions{Group: "g", Patterns: []string{"**"}, Access: Access{Receive: may}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	first := join(nil)
	publish(t, b, post{topic: "a", payload: "1"}, post{topic: "b", payload: "2"}, post{topic: "a", payload: "3", key: "k"}, post{topic: "b", payload: "4", key: "k"})
	var d Delivery
	for first.Take(&d, 1<<20) {
		first.Settle(&d, true)
	}
	onlyA := join(permission(t, []string{"a"}, nil))
	first.Revoke()
	if e := first.Ending(); e.Reason != EndRevoked {
		t.Fatalf("ended as %s", e.Reason)
	}
	wantMember(t, onlyA, []string{"1", "3"})
	// The others wait for somebody who may have them.
	wantMember(t, join(permission(t, []string{"**"}, []string{"a"})), []string{"2", "4"})
	if st := b.Stats(); st.Dropped != 0 {
		t.Errorf("%d dropped", st.Dropped)
	}
}

// wantMember takes and acknowledges what there is for a member, which must be first deliveries of these.
func wantMember(t *testing.T, m *Member, want []string) {
	t.Helper()
	var d Delivery
	var got []string
	for m.Take(&d, 1<<20) {
		if d.Attempt != 1 {
			t.Errorf("attempt %d", d.Attempt)
		}
		got = append(got, records(&d)...)
		acked := SequenceRange{d.FirstSequence, d.FirstSequence + uint64(d.Count) - 1}
		m.Settle(&d, true)
		m.Ack(acked)
	}
	slices.Sort(got)
	wantPayloads(t, got, want)
}

// TestPermissionsAgainstANaiveModel: who receives what, with permissions and without, is what two loops say.
func TestPermissionsAgainstANaiveModel(t *testing.T) {
	patterns := []string{"**", "a.*", "a.**", "a.b", "*.b", "{a,b}.c", "b", "**.c", "$tb.dlq.*", "$tb.d?q.**"}
	topics := []string{"a", "b", "a.b", "a.c", "b.c", "a.b.c", "b.b", "c"}
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			some := func(n int) (list []string) {
				for range n {
					list = append(list, patterns[rng.IntN(len(patterns))])
				}
				return list
			}
			b := newBroker(t, nil)
			type reader struct {
				sub      *Subscription
				patterns *PatternSet
				may      *Permission
				want     []string
			}
			var readers []*reader
			next := 0
			send := func(topic string, publish func(p post) int) {
				p := post{topic: topic, payload: strconv.Itoa(next)}
				next++
				receivers := 0
				for _, r := range readers {
					if r.patterns.Match(topic) && r.may.Match(topic) {
						r.want = append(r.want, p.payload)
						receivers++
					}
				}
				if got := publish(p); got != receivers && got >= 0 {
					t.Fatalf("%s: %d receivers, want %d", topic, got, receivers)
				}
			}
			for range 1500 {
				switch op := rng.IntN(8); {
				case op == 0 && len(readers) < 40:
					r := &reader{may: permission(t, some(1+rng.IntN(3)), some(rng.IntN(2)))}
					if rng.IntN(4) == 0 {
						r.may = nil
					}
					chosen := some(1 + rng.IntN(2))
					set, err := ParsePatterns(chosen)
					if err != nil {
						t.Fatal(err)
					}
					r.patterns = set
					if r.sub, err = b.Subscribe(SubscribeOptions{Patterns: chosen, Access: Access{Receive: r.may}}); err == nil {
						readers = append(readers, r)
					}
				case op == 1 && len(readers) > 0:
					i := rng.IntN(len(readers))
					wantPayloads(t, takeAll(readers[i].sub), readers[i].want)
					readers[i].sub.Revoke()
					readers = slices.Delete(readers, i, i+1)
				case op == 2:
					// One of the broker's own: dead letters are judged like everything else.
					send("$tb.dlq.g", func(p post) int {
						b.publishOwn(&publication{id: b.publications.Add(1)}, p.topic, batchOf(p).Data)
						return -1
					})
				default:
					send(topics[rng.IntN(len(topics))], func(p post) int { return publish(t, b, p)[0].Receivers })
				}
			}
			for _, r := range readers {
				wantPayloads(t, takeAll(r.sub), r.want)
			}
		})
	}
}

// TestGroupPermissionsAgainstANaiveModel: members come and go; whatever a member gets it may have, and everything that was accepted
// arrives once somebody comes who may have it, keyed or not.
func TestGroupPermissionsAgainstANaiveModel(t *testing.T) {
	topics := []string{"a", "b", "c", "a.x", "b.x"}
	allowed := [][]string{{"a"}, {"b", "b.*"}, {"**"}, {"a", "b"}, {"*.x"}}
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			b := newBroker(t, nil)
			topicOf := map[string]string{}
			done := map[string]bool{}
			var members []*Member
			accepted := 0
			take := func(m *Member) {
				var d Delivery
				if !m.Take(&d, int64(1+rng.IntN(60))) {
					return
				}
				got, r := records(&d), SequenceRange{d.FirstSequence, d.FirstSequence + uint64(d.Count) - 1}
				for _, id := range got {
					if topic := topicOf[id]; !m.patterns.Match(topic) || !m.access.Receive.Match(topic) {
						t.Fatalf("%v that may not receive it got message %s on %s", m.access.Receive.key, id, topic)
					}
				}
				m.Settle(&d, true)
				if rng.IntN(3) == 0 {
					m.Nack(Nack{Action: NackRelease}, r)
					return
				}
				m.Ack(r)
				for _, id := range got {
					if done[id] {
						t.Fatalf("message %s twice", id)
					}
					done[id] = true
				}
			}
			for i := range 1500 {
				switch op := rng.IntN(10); {
				case op == 0 && len(members) < 8:
					m, err := b.Join(JoinOptions{Group: "g", Patterns: []string{"**"}, Access: Access{Receive: permission(t, allowed[rng.IntN(len(allowed))], nil)}})
					if err != nil {
						t.Fatal(err)
					}
					members = append(members, m)
				case op == 1 && len(members) > 0:
					j := rng.IntN(len(members))
					members[j].Revoke()
					members = slices.Delete(members, j, j+1)
				case op < 6:
					p := post{topic: topics[rng.IntN(len(topics))], payload: fmt.Sprint(i), key: []string{"", "", "k", "l"}[rng.IntN(4)]}
					topicOf[p.payload] = p.topic
					accepted += publish(t, b, p)[0].Receivers
				case len(members) > 0:
					take(members[rng.IntN(len(members))])
				}
			}
			for _, m := range members {
				m.Revoke()
			}
			last, err := b.Join(JoinOptions{Group: "g", Patterns: []string{"**"}})
			if err != nil {
				t.Fatal(err)
			}
			defer last.Close()
			for range 5000 {
				take(last)
			}
			if len(done) != accepted || accepted == 0 {
				t.Errorf("%d of %d messages done", len(done), accepted)
			}
		})
	}
}

// Who asks which subscriptions would receive a topic is told the truth.
func TestObservePermissions(t *testing.T) {
	b := newBroker(t, nil)
	subscribe(t, b, SubscribeOptions{ID: "may", Patterns: []string{"**"}, Access: Access{Receive: permission(t, []string{"a"}, nil)}})
	subscribe(t, b, SubscribeOptions{ID: "not", Patterns: []string{"**"}, Access: Access{Receive: permission(t, []string{"b"}, nil)}})
	snap, err := b.Observe(Query{View: ViewSubscriptions, Topic: "a"})
	if err != nil || len(snap.Subscriptions) != 1 || snap.Subscriptions[0].ID != "may" {
		t.Errorf("%+v, %v", snap.Subscriptions, err)
	}
}
