package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func join(t testing.TB, b *Broker, o JoinOptions) *Member {
	t.Helper()
	if o.Group == "" {
		o.Group = "g"
	}
	if o.Patterns == nil {
		o.Patterns = []string{"**"}
	}
	m, err := b.Join(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// got is what one Take of a member brought.
type got struct {
	payloads []string
	first    uint64
	attempt  int
}

func (g got) all() SequenceRange {
	return SequenceRange{g.first, g.first + uint64(len(g.payloads)) - 1}
}

// take takes one delivery as a stream would that is written at once.
func take(m *Member) (got, bool) {
	var d Delivery
	if !m.Take(&d, 64<<10) {
		return got{}, false
	}
	g := got{payloads: records(&d), first: d.FirstSequence, attempt: d.Attempt}
	m.Settle(&d, true)
	return g, true
}

// takeEverything takes until nothing comes.
func takeEverything(m *Member) (payloads []string, last got) {
	for {
		g, ok := take(m)
		if !ok {
			return payloads, last
		}
		payloads = append(payloads, g.payloads...)
		last = g
	}
}

func groupStats(t testing.TB, b *Broker, name string) GroupStats {
	t.Helper()
	for _, st := range b.Groups() {
		if st.Name == name {
			if st.Pending < 0 || st.InFlight < 0 {
				t.Fatalf("negative gauge: %+v", st)
			}
			return st
		}
	}
	t.Fatalf("there is no group %q", name)
	return GroupStats{}
}

func wantBooks(t testing.TB, b *Broker, acked uint64, pending, inFlight int) {
	t.Helper()
	st := groupStats(t, b, "g")
	if st.Acked != acked || st.Pending != pending || st.InFlight != inFlight {
		t.Fatalf("acked %d, pending %d, in flight %d; want %d, %d, %d", st.Acked, st.Pending, st.InFlight, acked, pending, inFlight)
	}
}

func TestAGroupGetsEachMessageOnce(t *testing.T) {
	b := newBroker(t, nil)
	one, two := join(t, b, JoinOptions{}), join(t, b, JoinOptions{})
	watcher := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	runs := publish(t, b, numbered("t", 0, 100)...)
	if runs[0].Receivers != 2 {
		t.Errorf("%d receivers, want 2: a group counts once", runs[0].Receivers)
	}
	a, _ := take(one)
	if len(a.payloads) != 50 {
		t.Errorf("the first to ask got %d of 100, want an even share", len(a.payloads))
	}
	c, _ := takeEverything(two)
	wantPayloads(t, append(slices.Clone(a.payloads), c...), payloads(numbered("t", 0, 100)))
	wantBooks(t, b, 0, 0, 100)
	one.Ack(SequenceRange{1, 1 << 40})
	two.Ack(SequenceRange{1, 50})
	wantBooks(t, b, 100, 0, 0)
	wantPayloads(t, takeAll(watcher), payloads(numbered("t", 0, 100)))
	wantMemory(t, b, 0)
}

func TestAMemberHasNoMoreInFlightThanAllowed(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 10})
	publish(t, b, numbered("t", 0, 25)...)
	all, last := takeEverything(m)
	wantPayloads(t, all, payloads(numbered("t", 0, 10)))
	m.Ack(SequenceRange{3, 4})
	next, _ := take(m)
	wantPayloads(t, next.payloads, []string{"10", "11"})
	if _, more := take(m); more {
		t.Error("a member at its cap was given more")
	}
	m.Ack(SequenceRange{1, last.first + 100})
	wantBooks(t, b, 12, 13, 0)
}

func TestAcksSettleOnlyWhatTheyName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		one, two := join(t, b, JoinOptions{}), join(t, b, JoinOptions{})
		publish(t, b, numbered("t", 0, 10)...)
		take(one)
		takeEverything(two)
		two.Ack(SequenceRange{1, 2})
		two.Ack(SequenceRange{1, 2}) // again
		two.Ack(SequenceRange{7, 9}) // never given to it
		one.Ack(SequenceRange{3, 1}) // nothing
		wantBooks(t, b, 2, 0, 8)
		one.Ack(SequenceRange{2, 2}, SequenceRange{4, 4})
		wantBooks(t, b, 4, 0, 6)
		one.Nack(Nack{Action: NackRelease}, SequenceRange{2, 2}) // acknowledged already
		wantBooks(t, b, 4, 0, 6)
		one.Close()
		one.Ack(SequenceRange{1, 5}) // late
		back, _ := take(two)
		wantPayloads(t, back.payloads, []string{"0", "2", "4"})
		take(two)
		two.Ack(SequenceRange{1, 100})
		wantBooks(t, b, 10, 0, 0)
		if st := groupStats(t, b, "g"); st.Ineffective != 5 || st.Redelivered != 3 {
			t.Errorf("%d ineffective and %d redelivered, want 5 and 3", st.Ineffective, st.Redelivered)
		}
		wantMemory(t, b, 0)
	})
}

func TestACrashReturnsMessagesToTheFrontInOrder(t *testing.T) {
	b := newBroker(t, nil)
	one := join(t, b, JoinOptions{MaxInFlight: 3})
	publish(t, b, numbered("t", 1, 10)...)
	takeEverything(one)
	one.Close()
	two := join(t, b, JoinOptions{})
	first, _ := take(two)
	wantPayloads(t, first.payloads, []string{"1", "2", "3"})
	if first.attempt != 2 {
		t.Errorf("attempt %d, want 2", first.attempt)
	}
	second, _ := take(two)
	wantPayloads(t, second.payloads, payloads(numbered("t", 4, 7)))
	if second.attempt != 1 {
		t.Errorf("messages never given out have attempt %d, want 1", second.attempt)
	}
}

func TestWhatWasNotWrittenCountsNoAttempt(t *testing.T) {
	b := newBroker(t, nil)
	one := join(t, b, JoinOptions{})
	publish(t, b, post{topic: "t", payload: "1"})
	take(one)
	publish(t, b, post{topic: "t", payload: "2"})
	var d Delivery
	one.Take(&d, 1<<20) // stuck in the stream when the member goes
	one.Close()
	one.Settle(&d, false)
	two := join(t, b, JoinOptions{})
	first, _ := take(two)
	second, _ := take(two)
	if first.attempt != 2 || second.attempt != 1 || len(first.payloads)+len(second.payloads) != 2 {
		t.Errorf("got %+v and %+v, want the written one with attempt 2 and the other with 1", first, second)
	}
}

func TestLeaveChargesNoAttempt(t *testing.T) {
	b := newBroker(t, nil)
	one := join(t, b, JoinOptions{})
	publish(t, b, numbered("t", 0, 4)...)
	take(one)
	one.Leave()
	publish(t, b, post{topic: "t", payload: "4"})
	if _, more := take(one); more {
		t.Error("a member that leaves was given more")
	}
	one.Ack(SequenceRange{1, 2})
	select {
	case <-one.Done():
		t.Fatal("it ended before its deliveries were settled")
	default:
	}
	one.Left()
	if r := one.Ending().Reason; r != EndLeft {
		t.Errorf("ended as %s, want left", r)
	}
	two := join(t, b, JoinOptions{})
	back, _ := take(two)
	wantPayloads(t, back.payloads, []string{"2", "3", "4"})
	if back.attempt != 1 {
		t.Errorf("attempt %d after a clean leave, want 1", back.attempt)
	}
	two.Leave()
	two.Ack(back.all())
	if r := two.Ending().Reason; r != EndLeft {
		t.Errorf("after its last ack a leaving member ended as %s, want left", r)
	}
	wantBooks(t, b, 5, 0, 0)
}

func TestAckDeadline(t *testing.T) {
	for _, deadline := range []time.Duration{5 * time.Second, 700 * time.Millisecond} {
		t.Run(deadline.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				m := join(t, b, JoinOptions{MaxInFlight: 10, Settings: GroupSettings{AckDeadline: &deadline}})
				var first, again time.Time
				done := make(chan struct{})
				go work(m, func(g got) {
					switch {
					case !slices.Contains(g.payloads, "2"):
						m.Ack(g.all())
					case g.attempt == 1:
						first = time.Now()
					default:
						again = time.Now()
						m.Ack(g.all())
						close(done)
					}
				})
				for i := range 10 {
					publish(t, b, post{topic: "t", payload: fmt.Sprint(i)})
					time.Sleep(200 * time.Millisecond)
				}
				<-done
				if took := again.Sub(first); took != deadline {
					t.Errorf("came back after %v, want %v", took, deadline)
				}
				wantBooks(t, b, 10, 0, 0)
				if st := groupStats(t, b, "g"); st.Redelivered != 1 || st.Expired != 1 {
					t.Errorf("%d redelivered, want only the third message", st.Redelivered)
				}
				m.Close()
			})
		})
	}
}

// work hands every delivery of m to f until m has ended.
func work(m *Member, f func(g got)) {
	for {
		if g, ok := take(m); ok {
			f(g)
			continue
		}
		select {
		case <-m.Wake():
		case <-m.Done():
			return
		}
	}
}

func TestTheDeadlineRunsFromTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.AckDeadline = 5 * time.Second; o.SendTimeout = time.Minute })
		m := join(t, b, JoinOptions{})
		publish(t, b, post{topic: "t", payload: "x"})
		var d Delivery
		m.Take(&d, 1<<20)
		time.Sleep(20 * time.Second) // a slow stream
		m.Settle(&d, true)
		time.Sleep(5*time.Second - 1)
		wantBooks(t, b, 0, 0, 1)
		time.Sleep(1)
		synctest.Wait()
		wantBooks(t, b, 0, 1, 0)
	})
}

func TestAMemberAtItsCapGetsItsOwnMessagesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{MaxInFlight: 2})
		publish(t, b, numbered("t", 0, 2)...)
		takeEverything(m)
		time.Sleep(b.Options().AckDeadline)
		<-m.Wake()
		g, _ := take(m)
		wantPayloads(t, g.payloads, []string{"0", "1"})
		if g.attempt != 2 {
			t.Errorf("attempt %d, want 2", g.attempt)
		}
	})
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		publish(t, b, numbered("t", 0, 5)...)
		take(m)
		time.Sleep(20 * time.Second)
		m.Extend(time.Minute, SequenceRange{2, 3})
		m.Extend(0, SequenceRange{5, 5})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantBooks(t, b, 0, 2, 3) // 1 and 4 have expired
		time.Sleep(20 * time.Second)
		synctest.Wait()
		wantBooks(t, b, 0, 3, 2) // 5 has
		m.Ack(SequenceRange{2, 3})
		wantBooks(t, b, 2, 3, 0)
	})
}

func TestNackRetryBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		publish(t, b, numbered("t", 1, 3)...)
		take(m)
		m.Nack(Nack{}, SequenceRange{2, 2})
		m.Ack(SequenceRange{1, 1}, SequenceRange{3, 3})
		for attempt := 1; attempt < 5; attempt++ {
			wantBooks(t, b, 2, 1, 0)
			if _, early := take(m); early {
				t.Fatal("redelivered without a pause")
			}
			begun := time.Now()
			<-m.Wake()
			pause := time.Since(begun)
			if least := minBackoff << (attempt - 1) * 3 / 4; pause < least || pause > least*5/3 {
				t.Errorf("pause %d took %v, want about %v", attempt, pause, minBackoff<<(attempt-1))
			}
			g, _ := take(m)
			if g.attempt != attempt+1 || g.payloads[0] != "2" {
				t.Fatalf("attempt %d brought %+v", attempt+1, g)
			}
			m.Nack(Nack{}, g.all())
		}
		wantBooks(t, b, 2, 0, 0)
		if st := groupStats(t, b, "g"); st.DeadLetters != 1 {
			t.Errorf("%d dead letters, want 1", st.DeadLetters)
		}
	})
}

func TestNackReleaseAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		publish(t, b, numbered("t", 1, 3)...)
		g, _ := take(m)
		m.Nack(Nack{Action: NackRelease}, g.all())
		g, _ = take(m)
		if g.attempt != 1 || len(g.payloads) != 3 {
			t.Fatalf("released: %+v, want attempt 1", g)
		}
		delay := 250 * time.Millisecond
		m.Nack(Nack{Delay: &delay}, g.all())
		take(m)
		begun := time.Now()
		<-m.Wake()
		if took := time.Since(begun); took != delay {
			t.Errorf("came back after %v, want %v", took, delay)
		}
		none := time.Duration(0)
		g, _ = take(m)
		m.Nack(Nack{Delay: &none}, g.all())
		g, _ = take(m)
		if g.attempt != 3 {
			t.Errorf("attempt %d, want 3 at once", g.attempt)
		}
	})
}

func TestDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		dlq := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.*"}})
		blind := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
		events := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.deadletter"}})
		m := join(t, b, JoinOptions{Patterns: []string{"job.*"}})
		publish(t, b, post{topic: "job.eu", payload: "bad", key: "k"}, post{topic: "job.eu", payload: ""})
		g, _ := take(m)
		m.Nack(Nack{Action: NackReject, Reason: "no such customer"}, SequenceRange{g.first, g.first})
		rest, _ := takeEverything(m)
		m.Nack(Nack{Action: NackReject}, SequenceRange{2, 2})
		if len(g.payloads)+len(rest) != 2 {
			t.Fatalf("took %v and %v", g.payloads, rest)
		}
		wantPayloads(t, takeAll(dlq), []string{
			"tinybroker-attempts=1;tinybroker-group=g;tinybroker-reason=rejected: no such customer;tinybroker-topic=job.eu;|bad",
			"tinybroker-attempts=1;tinybroker-group=g;tinybroker-reason=rejected;tinybroker-topic=job.eu;|",
		})
		wantPayloads(t, takeAll(blind), []string{"bad", ""})
		if told := takeAll(events); len(told) != 2 || !strings.Contains(told[0], `"reason":"rejected: no such customer"`) {
			t.Errorf("events: %q", told)
		}
		if st := b.Stats(); st.DeadLetters != 2 || st.Published != 2 {
			t.Errorf("%d dead letters, %d published; want 2 and 2", st.DeadLetters, st.Published)
		}
		wantBooks(t, b, 0, 0, 0)
	})
}

func TestADeadLetterThatDiesDoesNotLoop(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{})
	mourner := join(t, b, JoinOptions{Group: "mourners", Patterns: []string{"$tb.dlq.**"}})
	publish(t, b, post{topic: "t", payload: "x"})
	g, _ := take(m)
	m.Nack(Nack{Action: NackReject}, g.all())
	g, ok := take(mourner)
	if !ok {
		t.Fatal("a group got no dead letter")
	}
	mourner.Nack(Nack{Action: NackReject}, g.all())
	if _, again := take(mourner); again {
		t.Error("a dead letter's dead letter came")
	}
	if st := b.Stats(); st.DeadLetters != 2 {
		t.Errorf("%d dead letters counted, want 2", st.DeadLetters)
	}
}

func TestADeadLetterThatFindsNoRoomIsCounted(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{})
	join(t, b, JoinOptions{Group: "mourners", Patterns: []string{"$tb.dlq.g"}, Settings: GroupSettings{Capacity: 1}})
	publish(t, b, numbered("t", 0, 3)...)
	g, _ := take(m)
	m.Nack(Nack{Action: NackReject}, g.all())
	if st := b.Stats(); st.DeadLetters != 3 || st.Dropped != 2 {
		t.Errorf("%d dead letters, %d dropped; want 3 and the 2 that found no room", st.DeadLetters, st.Dropped)
	}
	wantBooks(t, b, 0, 0, 0)
}

// A message that kills whoever takes it ends as a dead letter, and no other message does.
func TestPoisonTakesNoOthersAlong(t *testing.T) {
	b := newBroker(t, nil)
	dlq := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.g"}})
	posts := numbered("t", 0, 200)
	posts[20].payload = "poison"
	acked := map[string]int{}
	work := func(m *Member) (died bool) {
		for {
			g, ok := take(m)
			if !ok {
				return false
			}
			if slices.Contains(g.payloads, "poison") {
				m.Close()
				return true
			}
			for _, p := range g.payloads {
				acked[p]++
			}
			m.Ack(g.all())
		}
	}
	m := join(t, b, JoinOptions{})
	publish(t, b, posts...)
	deaths := 0
	for work(m) {
		deaths++
		m = join(t, b, JoinOptions{})
	}
	if deaths != 5 {
		t.Errorf("poison killed %d members, want max_attempts, 5", deaths)
	}
	letters := takeAll(dlq)
	if len(letters) != 1 || !strings.HasSuffix(letters[0], "|poison") || !strings.Contains(letters[0], "attempts=5") {
		t.Errorf("dead letters: %q", letters)
	}
	for _, p := range posts {
		if p.payload != "poison" && acked[p.payload] == 0 {
			t.Errorf("message %s was never acknowledged", p.payload)
		}
	}
	wantBooks(t, b, 199, 0, 0)
}

func TestAckNone(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 2, Settings: GroupSettings{Ack: AckNone}})
	publish(t, b, numbered("t", 0, 100)...)
	all, _ := takeEverything(m)
	wantPayloads(t, all, payloads(numbered("t", 0, 100)))
	wantBooks(t, b, 100, 0, 0)
	if s := m.Settings(); s.Overflow != OverflowDropOldest {
		t.Errorf("without acks the overflow policy is %s, want drop-oldest", s.Overflow)
	}
	var d Delivery
	publish(t, b, post{topic: "t", payload: "x"})
	m.Take(&d, 1<<20)
	m.Settle(&d, false)
	wantBooks(t, b, 100, 1, 0)
}

func TestGroupOverflow(t *testing.T) {
	for _, c := range []struct {
		policy  OverflowPolicy
		refused bool
		want    []string
	}{
		{OverflowReject, true, payloads(numbered("t", 0, 5))},
		{OverflowDropOldest, false, payloads(numbered("t", 3, 5))},
		{OverflowDropNewest, false, payloads(numbered("t", 0, 5))},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			b := newBroker(t, nil)
			m := join(t, b, JoinOptions{Settings: GroupSettings{Capacity: 5, Overflow: c.policy}})
			publish(t, b, numbered("t", 0, 4)...)
			r := publish(t, b, numbered("t", 4, 4)...)[0]
			if refused := errors.Is(r.Err, ErrGroupFull); refused != c.refused {
				t.Errorf("the run came back as %+v", r)
			}
			if c.refused && r.Accepted != 1 {
				t.Errorf("%d accepted, want the one there was room for", r.Accepted)
			}
			all, _ := takeEverything(m)
			wantPayloads(t, all, c.want)
			m.Ack(SequenceRange{1, 100})
			st := groupStats(t, b, "g")
			if st.Accepted != st.Acked+st.Dropped {
				t.Errorf("books: %+v", st)
			}
			wantMemory(t, b, 0)
		})
	}
}

// When one of two groups refuses, neither the other nor anybody else has the message; the retry comes once to each.
func TestRejectIsAllOrNothing(t *testing.T) {
	b := newBroker(t, nil)
	narrow := join(t, b, JoinOptions{Group: "narrow", Settings: GroupSettings{Capacity: 2}})
	wide := join(t, b, JoinOptions{Group: "wide"})
	watcher := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	publish(t, b, numbered("t", 0, 2)...)
	r := publish(t, b, post{topic: "t", payload: "2"})[0]
	if !errors.Is(r.Err, ErrGroupFull) || r.Accepted != 0 || !strings.Contains(r.Err.Error(), "narrow") {
		t.Fatalf("a publish into a full group came back as %+v", r)
	}
	all, _ := takeEverything(wide)
	wantPayloads(t, all, []string{"0", "1"})
	wantPayloads(t, takeAll(watcher), []string{"0", "1"})
	take(narrow)
	if r := publish(t, b, post{topic: "t", payload: "2"})[0]; r.Err != nil || r.Receivers != 3 {
		t.Fatalf("the retry came back as %+v", r)
	}
	all, _ = takeEverything(wide)
	wantPayloads(t, all, []string{"2"})
	all, _ = takeEverything(narrow)
	wantPayloads(t, all, []string{"2"})
	wantPayloads(t, takeAll(watcher), []string{"2"})
}

func TestRejectHonoursMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{Settings: GroupSettings{Capacity: 8}})
		fill := func() (Run, time.Duration) {
			begun := time.Now()
			batch := batchOf(numbered("t", 0, 10)...)
			batch.MaxWait = testPatience
			publishBatch(t, b, batch)
			return batch.Runs[0], time.Since(begun)
		}
		for range 2 {
			if r, took := fill(); !errors.Is(r.Err, ErrGroupFull) || took != testPatience {
				t.Fatalf("with nobody taking: %+v after %v, want a refusal after %v", r, took, testPatience)
			}
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			work(m, func(g got) {
				m.Ack(g.all())
				time.Sleep(time.Second)
			})
		}()
		if r, took := fill(); r.Err != nil || took >= testPatience {
			t.Fatalf("with a slow member: %+v after %v", r, took)
		}
		m.Close()
		<-stopped
	})
}

func TestGroupLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		events := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.group.*"}})
		if r := publish(t, b, post{topic: "t", payload: "before"})[0]; r.Receivers != 0 {
			t.Error("a message was queued for a group that does not exist yet")
		}
		m := join(t, b, JoinOptions{Settings: GroupSettings{Capacity: 20}})
		publish(t, b, numbered("t", 0, 10)...)
		take(m)
		m.Close()
		time.Sleep(59 * time.Second)
		publish(t, b, numbered("t", 10, 5)...)
		m = join(t, b, JoinOptions{})
		time.Sleep(time.Hour)
		all, _ := takeEverything(m)
		wantPayloads(t, all, payloads(numbered("t", 0, 15)))
		m.Close()
		r := publish(t, b, numbered("t", 15, 10)...)[0]
		if r.Accepted != 5 || !errors.Is(r.Err, ErrGroupFull) {
			t.Errorf("without members: %+v, want the backlog bounded", r)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(b.Groups()); n != 0 {
			t.Fatalf("%d groups after the linger", n)
		}
		if st := b.Stats(); st.Dropped != 20 {
			t.Errorf("%d dropped, want the 20 that were queued", st.Dropped)
		}
		wantPayloads(t, takeAll(events), []string{`{"group":"g"}`, `{"group":"g","dropped":20}`})
		wantMemory(t, b, 0)
		if r := publish(t, b, post{topic: "t", payload: "after"})[0]; r.Receivers != 0 {
			t.Error("a group that is gone takes messages")
		}
	})
}

func TestLastLeavesAsTheNextJoins(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.GroupLinger = 0 })
	for round := range 500 {
		m := join(t, b, JoinOptions{})
		left := make(chan struct{})
		go func() { m.Close(); close(left) }()
		next := join(t, b, JoinOptions{})
		r := publish(t, b, post{topic: "t", payload: fmt.Sprint(round)})[0]
		<-left
		if r.Receivers != 1 {
			t.Fatalf("round %d: %d receivers", round, r.Receivers)
		}
		g, ok := take(next)
		if !ok || g.payloads[len(g.payloads)-1] != fmt.Sprint(round) {
			t.Fatalf("round %d: the newcomer got %+v", round, g)
		}
		next.Ack(g.all())
		next.Close()
	}
}

func TestGroupSettingsMustAgree(t *testing.T) {
	b := newBroker(t, nil)
	second := time.Second
	hour := time.Hour
	join(t, b, JoinOptions{Settings: GroupSettings{AckDeadline: &second, MaxAttempts: 3, Capacity: 7, Overflow: OverflowDropNewest}})
	join(t, b, JoinOptions{}) // no wishes, no quarrel
	join(t, b, JoinOptions{Settings: GroupSettings{AckDeadline: &second, MaxAttempts: 3, Capacity: 7, Ack: AckExplicit, Overflow: OverflowDropNewest}})
	for setting, s := range map[string]GroupSettings{
		"ack_mode":     {Ack: AckNone},
		"overflow":     {Overflow: OverflowReject},
		"capacity":     {Capacity: 8},
		"ack_deadline": {AckDeadline: &hour},
		"max_attempts": {MaxAttempts: 4},
	} {
		_, err := b.Join(JoinOptions{Group: "g", Patterns: []string{"**"}, Settings: s})
		if !errors.Is(err, ErrGroupConfig) || !strings.Contains(err.Error(), setting) {
			t.Errorf("%s differs: %v", setting, err)
		}
	}
	if n := groupStats(t, b, "g").Members; n != 3 {
		t.Errorf("%d members, want 3", n)
	}
}

func TestJoinRefusals(t *testing.T) {
	b := newBroker(t, nil)
	minus, long := -time.Second, 25*time.Hour
	for name, o := range map[string]JoinOptions{
		"dot in the name":       {Group: "a.b"},
		"name too long":         {Group: strings.Repeat("x", 129)},
		"eviction":              {Settings: GroupSettings{Overflow: OverflowEvict}},
		"unknown ack mode":      {Settings: GroupSettings{Ack: 7}},
		"negative capacity":     {Settings: GroupSettings{Capacity: -1}},
		"negative deadline":     {Settings: GroupSettings{AckDeadline: &minus}},
		"too long a deadline":   {Settings: GroupSettings{AckDeadline: &long}},
		"negative max_attempts": {Settings: GroupSettings{MaxAttempts: -1}},
		"huge max_in_flight":    {MaxInFlight: 1 << 20},
	} {
		if o.Group == "" {
			o.Group = "g"
		}
		o.Patterns = []string{"**"}
		if _, err := b.Join(o); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, want ErrProtocol", name, err)
		}
	}
	if _, err := b.Join(JoinOptions{Group: "g", Patterns: []string{"["}}); !errors.Is(err, ErrPatternInvalid) {
		t.Errorf("bad pattern: %v", err)
	}
	if n := len(b.Groups()); n != 0 {
		t.Errorf("%d groups after refusals", n)
	}
}

// Members with different patterns are in different lanes; a message goes to one that can take it.
func TestLanes(t *testing.T) {
	b := newBroker(t, nil)
	eu := join(t, b, JoinOptions{Patterns: []string{"job.eu"}, MaxInFlight: 2})
	all := join(t, b, JoinOptions{Patterns: []string{"job.*"}, MaxInFlight: 2})
	publish(t, b, post{topic: "job.us", payload: "us"})
	g, _ := take(all)
	wantPayloads(t, g.payloads, []string{"us"})
	if _, wrong := take(eu); wrong {
		t.Error("a member got a message that its patterns do not match")
	}
	publish(t, b, numbered("job.eu", 0, 9)...)
	a, _ := takeEverything(eu)
	c, _ := takeEverything(all)
	if len(a) != 2 || len(c) != 1 {
		t.Errorf("members with free credit 2 and 1 got %v and %v", a, c)
	}
	eu.Ack(SequenceRange{1, 100})
	all.Ack(SequenceRange{1, 100})
	for {
		x, _ := takeEverything(eu)
		y, _ := takeEverything(all)
		if len(x)+len(y) == 0 {
			break
		}
		a, c = append(a, x...), append(c, y...)
		eu.Ack(SequenceRange{1, 100})
		all.Ack(SequenceRange{1, 100})
	}
	if len(a)+len(c) != 9 {
		t.Errorf("got %v and %v, want nine messages", a, c)
	}
	publish(t, b, post{topic: "other", payload: "x"})
	wantBooks(t, b, 10, 0, 0)
}

// A lane that loses its last member does not keep what others can do, nor what comes later.
func TestALaneWithoutMembersHandsItsMessagesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		eu := join(t, b, JoinOptions{Patterns: []string{"job.eu", "only.eu"}, MaxInFlight: 1})
		publish(t, b, post{topic: "job.eu", payload: "1"}, post{topic: "only.eu", payload: "2"}, post{topic: "job.eu", payload: "3"},
			post{topic: "job.eu", payload: "4", key: "k"}, post{topic: "job.eu", payload: "5", key: "k"})
		take(eu)
		all := join(t, b, JoinOptions{Patterns: []string{"job.*"}})
		eu.Close()
		publish(t, b, post{topic: "job.eu", payload: "6", key: "k"}, post{topic: "only.eu", payload: "7"})
		got, _ := takeEverything(all)
		wantPayloads(t, got, []string{"1", "3", "4", "5", "6"})
		all.Ack(SequenceRange{1, 100})
		wantBooks(t, b, 5, 2, 0)
		time.Sleep(b.Options().GroupLinger)
		synctest.Wait()
		wantBooks(t, b, 5, 0, 0)
		if st := groupStats(t, b, "g"); st.Dropped != 2 {
			t.Errorf("%d dropped with the lane, want 2", st.Dropped)
		}
		if r := publish(t, b, post{topic: "only.eu", payload: "8"})[0]; r.Receivers != 0 {
			t.Error("a lane that is gone takes messages")
		}
		wantMemory(t, b, 0)
	})
}

func TestAStalledMemberIsEvictedAndItsMessagesGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{ID: "m"})
		publish(t, b, numbered("t", 0, 3)...)
		var d Delivery
		m.Take(&d, 1<<20)
		time.Sleep(b.Options().SendTimeout - 1)
		synctest.Wait()
		if m.Ending().Reason != EndNone {
			t.Fatal("evicted too early")
		}
		time.Sleep(1)
		<-m.Done()
		if e := m.Ending(); e.Reason != EndStalled || !strings.Contains(e.Text, "10s") {
			t.Errorf("ended as %+v, want stalled", e)
		}
		m.Settle(&d, false)
		other := join(t, b, JoinOptions{ID: "m"})
		if p := other.Previous(); p == nil || p.Reason != EndStalled {
			t.Errorf("on its return it is told %+v", p)
		}
		g, _ := take(other)
		if len(g.payloads) != 3 || g.attempt != 1 {
			t.Errorf("the messages came back as %+v, want three with attempt 1", g)
		}
	})
}

func TestTakeoverInAGroup(t *testing.T) {
	b := newBroker(t, nil)
	first := join(t, b, JoinOptions{ID: "w"})
	publish(t, b, numbered("t", 0, 3)...)
	take(first)
	second := join(t, b, JoinOptions{ID: "w"})
	if r := first.Ending().Reason; r != EndReplaced {
		t.Errorf("the first ended as %s", r)
	}
	g, _ := take(second)
	wantPayloads(t, g.payloads, []string{"0", "1", "2"})
	first.Ack(SequenceRange{1, 3})
	wantBooks(t, b, 0, 0, 3)
}

// One member that answers slowly traps nothing: whoever is free gets the work.
func TestASlowMemberGetsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		counts := make([]int, 3)
		var members []*Member
		for i, pause := range []time.Duration{50 * time.Millisecond, time.Millisecond, time.Millisecond} {
			m := join(t, b, JoinOptions{MaxInFlight: 1})
			members = append(members, m)
			go work(m, func(g got) {
				time.Sleep(pause)
				counts[i] += len(g.payloads)
				m.Ack(g.all())
			})
		}
		begun := time.Now()
		publish(t, b, numbered("t", 0, 5000)...)
		for groupStats(t, b, "g").Acked < 5000 {
			time.Sleep(time.Millisecond)
		}
		took := time.Since(begun)
		for _, m := range members {
			m.Close()
		}
		synctest.Wait()
		if took > 2600*time.Millisecond {
			t.Errorf("5000 messages took %v, want about 2.5 s for two fast members", took)
		}
		if counts[0] < 40 || counts[0] > 60 {
			t.Errorf("the slow member did %d of 5000, want about a hundredth: %v", counts[0], counts)
		}
	})
}

// TestIdleMembersTakeTurns: among those that have equally little to do, the one that was served longest ago is next.
func TestIdleMembersTakeTurns(t *testing.T) {
	for _, ack := range []AckMode{AckExplicit, AckNone} {
		t.Run(ack.String(), func(t *testing.T) {
			b := newBroker(t, nil)
			var members []*Member
			for range 3 {
				m := join(t, b, JoinOptions{Settings: GroupSettings{Ack: ack}})
				take(m) // nothing yet: it waits
				members = append(members, m)
			}
			served := make([]int, 3)
			for i := range 30 {
				publish(t, b, numbered("t", i, 1)...)
				for j, m := range members {
					select {
					case <-m.Wake():
					default:
						continue
					}
					if g, ok := take(m); ok {
						served[j]++
						m.Ack(g.all())
						take(m)
					}
				}
			}
			if !slices.Equal(served, []int{10, 10, 10}) {
				t.Errorf("served %v times", served)
			}
		})
	}
}

func TestDrainWithAGroup(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 2})
	publish(t, b, numbered("t", 0, 3)...)
	g, _ := take(m)
	b.Drain()
	m.Ack(g.all())
	g, ok := take(m)
	if !ok {
		t.Fatal("what was queued is not delivered while the broker drains")
	}
	if m.Ending().Reason != EndNone {
		t.Fatal("the member ended with a delivery in flight")
	}
	m.Ack(g.all())
	if r := m.Ending().Reason; r != EndShuttingDown {
		t.Errorf("ended as %s, want shutting down", r)
	}
}

// While the broker drains, no member goes as long as something may come back for it.
func TestADrainWaitsForWhatOthersHold(t *testing.T) {
	ending := func(m *Member) EndReason { return m.Ending().Reason }
	for name, test := range map[string]func(t *testing.T, b *Broker, holder, idle *Member){
		"and acknowledge": func(t *testing.T, _ *Broker, holder, idle *Member) {
			for range 3 {
				g, _ := take(holder)
				if ending(holder) != EndNone || ending(idle) != EndNone {
					t.Fatal("one has gone while there is work")
				}
				holder.Ack(g.all())
			}
		},
		"and lose": func(t *testing.T, _ *Broker, holder, idle *Member) {
			take(holder)
			holder.Close()
			for _, want := range []string{"1", "2", "3"} {
				g, _ := take(idle)
				wantPayloads(t, g.payloads, []string{want})
				idle.Ack(g.all())
			}
		},
		"and fail": func(t *testing.T, b *Broker, holder, idle *Member) {
			g, _ := take(holder)
			holder.Nack(Nack{Delay: new(time.Second)}, g.all())
			time.Sleep(time.Second)
			synctest.Wait()
			for i := range 3 {
				m := holder
				if g, _ = take(m); len(g.payloads) == 0 {
					m = idle
					g, _ = take(m)
				}
				wantPayloads(t, g.payloads, []string{fmt.Sprint(i + 1)})
				m.Ack(g.all())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				holder, idle := join(t, b, JoinOptions{MaxInFlight: 1}), join(t, b, JoinOptions{MaxInFlight: 1})
				publish(t, b, post{"t", "1", "k"})
				g, _ := take(holder)
				publish(t, b, post{"t", "2", "k"}, post{"t", "3", "k"})
				holder.Nack(Nack{Action: NackRelease}, g.all())
				g, _ = take(holder)
				b.Drain()
				if ending(idle) != EndNone {
					t.Fatal("the idle one has gone, the other may yet give back what it holds")
				}
				holder.Nack(Nack{Action: NackRelease}, g.all())
				test(t, b, holder, idle)
				if got := ending(idle); got != EndShuttingDown {
					t.Errorf("the idle one ended as %s", got)
				}
				if got := ending(holder); got != EndShuttingDown && got != EndClosed {
					t.Errorf("the other one ended as %s", got)
				}
				wantBooks(t, b, 3, 0, 0)
			})
		})
	}
}

// Lanes that lose their members at different times wait for each other's linger without keeping the broker busy.
func TestLanesLingerOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		eu, us := join(t, b, JoinOptions{Patterns: []string{"eu"}}), join(t, b, JoinOptions{Patterns: []string{"us"}})
		publish(t, b, post{topic: "eu", payload: "1"}, post{topic: "us", payload: "2"})
		eu.Close()
		time.Sleep(b.options.GroupLinger / 2)
		us.Close()
		time.Sleep(b.options.GroupLinger - 1)
		wantBooks(t, b, 0, 2, 0)
		us = join(t, b, JoinOptions{Patterns: []string{"us"}})
		synctest.Wait()
		wantBooks(t, b, 0, 1, 0) // what waited for eu has waited for longer than the linger
		us.Close()
		time.Sleep(b.options.GroupLinger)
		synctest.Wait()
		wantMemory(t, b, 0)
	})
}

// A message that waits for another attempt comes when it is due, whatever else of its key its member holds.
func TestARetryBehindOthersOfItsKeyIsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		publish(t, b, post{"t", "1", "k"}, post{"t", "2", "k"})
		takeEverything(m)
		second := time.Second
		m.Nack(Nack{Delay: &second}, SequenceRange{1, 1})
		if g, early := take(m); early {
			t.Fatalf("%v came early", g.payloads)
		}
		begun := time.Now()
		<-m.Wake()
		g, _ := take(m)
		wantPayloads(t, g.payloads, []string{"1"})
		if took := time.Since(begun); took != second {
			t.Errorf("it came back after %v, want %v", took, second)
		}
	})
}

// A member gives back what is behind a message that has failed bit by bit, as it comes to it. Nothing that it has not had overtakes the rest.
func TestWhatWasBehindAFailedMessageComesBeforeWhatIsNew(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{})
	publish(t, b, post{"t", "1", "k"}, post{"t", "2", "k"}, post{"t", "3", "k"}, post{"t", "4", "k"})
	takeEverything(m)
	publish(t, b, post{"t", "5", "k"}, post{"t", "6", "k"})
	wantNext := func(want ...string) {
		t.Helper()
		got, _ := takeEverything(m)
		wantPayloads(t, got, want)
	}
	wantNext("5", "6") // the member may have more of a key that it has
	publish(t, b, post{"t", "7", "k"})
	m.Nack(Nack{Delay: new(time.Duration(0))}, SequenceRange{1, 1})
	m.Nack(Nack{Action: NackRelease}, SequenceRange{2, 3})
	wantNext("1", "2", "3")
	m.Nack(Nack{Action: NackRelease}, SequenceRange{4, 6})
	wantNext("4", "5", "6")
	m.Ack(SequenceRange{7, 11})
	wantNext()
	m.Ack(SequenceRange{12, 12})
	wantNext("7")
}

// One fails among messages that come for the second time. Those that are still to come for the second time do not overtake what the member is about to
// give back for it.
func TestWhatComesAgainDoesNotOvertakeWhatGoesBackAgain(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{})
	for i := range 6 {
		publish(t, b, post{"t", fmt.Sprint(i + 1), "k"})
	}
	takeEverything(m)
	next := func(want string) {
		t.Helper()
		var d Delivery
		got := ""
		if m.Take(&d, 1) {
			got = strings.Join(records(&d), " ")
			m.Settle(&d, true)
		}
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	atOnce := time.Duration(0)
	m.Nack(Nack{Delay: &atOnce}, SequenceRange{1, 1})
	m.Nack(Nack{Action: NackRelease}, SequenceRange{2, 5}) // 6 is still on its way back
	next("1")
	next("2")
	next("3")
	m.Ack(SequenceRange{7, 7})
	m.Nack(Nack{Delay: &atOnce}, SequenceRange{8, 8}) // 2 fails, and 3 goes back as soon as the member comes to it
	next("2")
	next("")
	m.Nack(Nack{Action: NackRelease}, SequenceRange{9, 9})
	next("3")
	next("4")
	next("5")
	m.Nack(Nack{Action: NackRelease}, SequenceRange{6, 6})
	next("6")
	m.Ack(SequenceRange{10, 14})
	wantBooks(t, b, 6, 0, 0)
}

// A key that never runs dry takes its turn like everybody else.
func TestABusyKeyDoesNotHoldUpTheRest(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 2})
	publish(t, b, post{"t", "k", "k"}, post{"t", "k", "k"}, post{"t", "k", "k"}, post{topic: "t", payload: "plain"}, post{"t", "l", "l"})
	var order []string
	for range 5 {
		publish(t, b, post{"t", "k", "k"}, post{"t", "k", "k"})
		g, _ := take(m)
		order = append(order, g.payloads...)
		m.Ack(SequenceRange{g.first, g.first}) // the key stays with the member
	}
	wantPayloads(t, order[:5], []string{"k", "k", "k", "plain", "l"})
}

// DROP_OLDEST bounds a group also where what fills it waits for a key or another attempt.
func TestDropOldestReachesWhatWaitsOutsideTheLanes(t *testing.T) {
	hour := time.Hour
	for name, fill := range map[string]func(m *Member, b *Broker){
		"key": func(m *Member, b *Broker) {
			publish(t, b, post{"t", "x", "k"})
			takeEverything(m)
			for range 20 {
				publish(t, b, post{"t", "x", "k"})
			}
		},
		"retry": func(m *Member, b *Broker) {
			for range 5 {
				publish(t, b, numbered("t", 0, 5)...)
				takeEverything(m)
				m.Nack(Nack{Delay: &hour}, SequenceRange{1, 1000})
			}
			publish(t, b, numbered("t", 0, 5)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, nil)
			m := join(t, b, JoinOptions{Settings: GroupSettings{Overflow: OverflowDropOldest, Capacity: 5}})
			fill(m, b)
			if st := groupStats(t, b, "g"); st.Pending != 5 || st.Dropped == 0 {
				t.Errorf("%d pending and %d dropped, want a backlog of 5", st.Pending, st.Dropped)
			}
		})
	}
}

// Messages that wait together for another attempt part where only some of them match another lane.
func TestARetryGoesToNobodyWhosePatternsDoNotMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		both := join(t, b, JoinOptions{Patterns: []string{"job.eu", "only.eu"}})
		all := join(t, b, JoinOptions{Patterns: []string{"job.*"}, MaxInFlight: 1})
		publish(t, b, post{topic: "job.us", payload: "0"})
		take(all) // at its limit
		publish(t, b, post{topic: "job.eu", payload: "1"}, post{topic: "only.eu", payload: "2"})
		takeEverything(both)
		second := time.Second
		both.Nack(Nack{Delay: &second}, SequenceRange{1, 2})
		both.Left()
		time.Sleep(second)
		synctest.Wait()
		all.Ack(SequenceRange{1, 1})
		g, _ := take(all)
		wantPayloads(t, g.payloads, []string{"1"})
		all.Ack(g.all())
		if g, more := take(all); more {
			t.Errorf("a member for job.* got %v", g.payloads)
		}
	})
}

// A publish that has found a lane which then expires counts its messages as unrouted instead of leaving them there.
func TestALaneThatHasGoneTakesNothing(t *testing.T) {
	b := newBroker(t, nil)
	join(t, b, JoinOptions{Patterns: []string{"us"}})
	eu := join(t, b, JoinOptions{Patterns: []string{"eu"}})
	publish(t, b, post{topic: "eu", payload: "1"}) // the route is remembered
	eu.Close()
	g := b.groups["g"]
	g.mu.Lock()
	g.removeLaneLocked(eu.lane) // the router has not heard of it yet
	g.mu.Unlock()
	if r := publish(t, b, post{topic: "eu", payload: "2"})[0]; r.Receivers != 0 || r.Unrouted != 1 {
		t.Errorf("a publish to a lane that has gone: %+v", r)
	}
	wantBooks(t, b, 0, 0, 0)
	if n := g.waiting(); n != 0 {
		t.Errorf("room for %d messages is taken", n)
	}
	wantMemory(t, b, 0)
}

// A message with a key that waits does not keep the frame it came in, most of which was for others.
func TestAKeyedMessagePinsNoLargeFrame(t *testing.T) {
	b := newBroker(t, nil)
	join(t, b, JoinOptions{Patterns: []string{"t"}})
	frame := []post{{"t", "x", ""}, {"t", "y", ""}, {topic: "elsewhere", payload: strings.Repeat("z", 40_000)}}
	for i := range 100 {
		frame[0].key, frame[1].key = fmt.Sprint("k", i), fmt.Sprint("l", i)
		publish(t, b, frame...)
	}
	if held, most := b.Stats().Memory, int64(200*(frameOverhead+parcelOverhead+keyOverhead+60)+50_000); held > most {
		t.Errorf("200 small messages hold %d bytes, want no more than %d", held, most)
	}
}

// serve has members take whatever they were woken for until nobody is any more, and acknowledge it at once if they are to.
func serve(t *testing.T, acks map[*Member]bool, members ...*Member) (got map[*Member][]string) {
	t.Helper()
	got = map[*Member][]string{}
	for again := true; again; {
		again = false
		for _, m := range members {
			select {
			case <-m.Wake():
			default:
				continue
			}
			again = true
			for g, ok := take(m); ok; g, ok = take(m) {
				got[m] = append(got[m], g.payloads...)
				if acks[m] {
					m.Ack(g.all())
				}
			}
		}
	}
	return got
}

// TestWhoMissesADeadlineComesLast: a worker that hangs must not get a message again and again until it is a dead letter, while another
// has nothing to do.
func TestWhoMissesADeadlineComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		hangs := join(t, b, JoinOptions{MaxInFlight: 20})
		works := join(t, b, JoinOptions{MaxInFlight: 5})
		take(hangs)
		take(works) // both wait now
		acks := map[*Member]bool{works: true}
		publish(t, b, numbered("t", 0, 40)...)
		first := serve(t, acks, hangs, works)
		if len(first[hangs]) == 0 {
			t.Fatal("the one that hangs got nothing: the test shows nothing")
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		second := serve(t, acks, hangs, works)
		if n := len(second[hangs]); n > 0 {
			t.Errorf("the one that hangs got %d again", n)
		}
		wantBooks(t, b, 40, 0, 0)

		// It helps out where the others have their hands full.
		acks[works] = false
		publish(t, b, numbered("t", 100, 8)...)
		third := serve(t, acks, hangs, works)
		if len(third[works]) != 5 || len(third[hangs]) != 3 {
			t.Errorf("the others got %d, the one that hangs %d; want 5, 3", len(third[works]), len(third[hangs]))
		}
		works.Ack(SequenceRange{1, 1 << 40})
		publish(t, b, numbered("t", 200, 2)...)
		if n := len(serve(t, acks, hangs, works)[hangs]); n > 0 {
			t.Errorf("it got %d while another had nothing to do", n)
		}
		works.Ack(SequenceRange{1, 1 << 40})

		// Whatever it says, it is back.
		hangs.Ack(SequenceRange{1, 1})
		publish(t, b, numbered("t", 300, 4)...)
		fourth := serve(t, map[*Member]bool{}, hangs, works)
		if len(fourth[hangs]) == 0 {
			t.Error("it gets nothing though it has spoken")
		}
	})
}

// TestAllMissADeadline: where there is nobody better, those that have missed one go on getting messages.
func TestAllMissADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		one, two := join(t, b, JoinOptions{}), join(t, b, JoinOptions{})
		take(one)
		take(two)
		publish(t, b, numbered("t", 0, 10)...)
		serve(t, nil, one, two)
		for attempt := 2; attempt <= 5; attempt++ {
			time.Sleep(30 * time.Second)
			synctest.Wait()
			got := serve(t, nil, one, two)
			if n := len(got[one]) + len(got[two]); n != 10 {
				t.Errorf("attempt %d: %d delivered", attempt, n)
			}
		}
		// One of them goes on, extending. From then on all is for it.
		two.Extend(time.Hour, SequenceRange{1, 1 << 40})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		publish(t, b, numbered("t", 100, 10)...)
		got := serve(t, map[*Member]bool{two: true}, one, two)
		if len(got[one]) > 0 || len(got[two]) == 0 {
			t.Errorf("the one that says nothing got %d, the other %d", len(got[one]), len(got[two]))
		}
	})
}

// TestAShortQueueIsSharedOut: a burst that each member could take whole goes to all of them, however often the first one asks.
func TestAShortQueueIsSharedOut(t *testing.T) {
	for _, ack := range []AckMode{AckExplicit, AckNone} {
		t.Run(ack.String(), func(t *testing.T) {
			b := newBroker(t, nil)
			var members []*Member
			for range 3 {
				m := join(t, b, JoinOptions{Settings: GroupSettings{Ack: ack}})
				take(m) // nothing: it waits
				members = append(members, m)
			}
			publish(t, b, numbered("t", 0, 50)...)
			got := make([]int, len(members))
			for again := true; again; {
				again = false
				for i, m := range members { // the first one asks until it gets no more
					for g, ok := take(m); ok; g, ok = take(m) {
						got[i] += len(g.payloads)
						again = true
					}
				}
			}
			if got[0]+got[1]+got[2] != 50 || slices.Max(got)-slices.Min(got) > 17 {
				t.Errorf("50 messages were shared out as %v", got)
			}
		})
	}
}

// TestNobodyWaitsForTheBlocked: what would be the share of a member whose stream takes nothing is for the others.
func TestNobodyWaitsForTheBlocked(t *testing.T) {
	for _, ack := range []AckMode{AckExplicit, AckNone} {
		t.Run(ack.String(), func(t *testing.T) {
			b := newBroker(t, nil)
			blocked := join(t, b, JoinOptions{Settings: GroupSettings{Ack: ack}})
			works := join(t, b, JoinOptions{Settings: GroupSettings{Ack: ack}})
			take(works)
			publish(t, b, numbered("t", 0, 2)...)
			var d Delivery
			if !blocked.Take(&d, 1<<20) {
				t.Fatal("nothing for the one that is to block")
			}
			publish(t, b, numbered("t", 2, 38)...)
			n := 0
			for g, ok := take(works); ok; g, ok = take(works) {
				n += len(g.payloads)
			}
			if want := 40 - d.Count; n != want {
				t.Errorf("it got %d, want %d", n, want)
			}
			blocked.Settle(&d, true)
		})
	}
}
