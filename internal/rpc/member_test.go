package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// groupMember is a Subscribe in a group, running beside the test.
type groupMember struct {
	opened chan Opened
	result chan error
	cancel context.CancelFunc
}

// joinGroup runs Subscribe and returns once the member has joined. The group is g and its patterns are **, if nothing else is asked for.
func joinGroup(t *testing.T, c *Client, o SubscribeOptions, handle func(*Delivery) error) *groupMember {
	t.Helper()
	if o.Group == "" {
		o.Group = "g"
	}
	if o.Patterns == nil {
		o.Patterns = []string{"**"}
	}
	m := &groupMember{opened: make(chan Opened, 1000), result: make(chan error, 1)}
	o.OnOpened = func(opened Opened) { m.opened <- opened }
	ctx, cancel := context.WithCancel(t.Context())
	m.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.result <- c.Subscribe(ctx, o, handle)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	select {
	case opened := <-m.opened:
		m.opened <- opened
	case err := <-m.result:
		t.Fatalf("subscribe: %v", err)
	}
	return m
}

// end waits for Subscribe to return.
func (m *groupMember) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-m.result:
		return err
	case <-time.After(time.Minute):
		t.Fatal("Subscribe does not return")
		return nil
	}
}

// send publishes messages with these payloads on topic t.
func (s *testSite) send(t *testing.T, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		s.sendKeyed(t, "", p)
	}
}

func (s *testSite) sendKeyed(t *testing.T, key string, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		record := Encoding{}.Append(nil, &core.Message{Topic: "t", Payload: []byte(p), Key: key})
		runs := []core.Run{{Topic: []byte("t"), End: len(record), Count: 1, Keyed: true}}
		if err := s.broker.Publish(t.Context(), &core.Batch{Data: record, Runs: runs}); err != nil || runs[0].Err != nil {
			t.Fatalf("publish: %v, %v", err, runs[0].Err)
		}
	}
}

// sendNumbered publishes messages numbered from first on.
func (s *testSite) sendNumbered(t *testing.T, first, n int) {
	t.Helper()
	for i := range n {
		s.send(t, fmt.Sprint(first+i))
	}
}

// group returns the books of a group, and fails when they do not balance.
func groupBooks(t testing.TB, b *core.Broker, name string) core.GroupStats {
	t.Helper()
	for _, st := range b.Groups() {
		if st.Name != name {
			continue
		}
		if st.Pending < 0 || st.InFlight < 0 || st.Accepted != st.Acked+st.DeadLetters+st.Dropped+uint64(st.Pending+st.InFlight) {
			t.Errorf("the books do not balance: %+v", st)
		}
		return st
	}
	t.Errorf("there is no group %q", name)
	return core.GroupStats{}
}

// wantBooks compares the books of group g, at rest.
func (s *testSite) wantBooks(t *testing.T, acked uint64, pending, inFlight int) core.GroupStats {
	t.Helper()
	st := groupBooks(t, s.broker, "g")
	if st.Acked != acked || st.Pending != pending || st.InFlight != inFlight {
		t.Errorf("acked %d, pending %d, in flight %d; want %d, %d, %d", st.Acked, st.Pending, st.InFlight, acked, pending, inFlight)
	}
	return st
}

// handled is a delivery that a handler was given.
type handled struct {
	payload string
	attempt uint32
	at      time.Duration // since the test's beginning
}

// recorder keeps what handlers are given. Its handle returns what result says, nil: nothing.
type recorder struct {
	start  time.Time
	list   chan handled
	result func(payload string, attempt uint32) error
}

func newRecorder(result func(payload string, attempt uint32) error) *recorder {
	return &recorder{start: time.Now(), list: make(chan handled, 100_000), result: result}
}

// handled returns what was handled since the last call, as payload/attempt.
func (r *recorder) handled() (all []string) {
	for len(r.list) > 0 {
		h := <-r.list
		all = append(all, fmt.Sprintf("%s/%d", h.payload, h.attempt))
	}
	return all
}

func (r *recorder) handle(d *Delivery) error {
	payload := string(d.Payload)
	r.list <- handled{payload, d.Attempt, time.Since(r.start)}
	if r.result == nil {
		return nil
	}
	return r.result(payload, d.Attempt)
}

// seen returns what was handled since the last call, as payload/attempt.
func (r *recorder) seen() (all []string) {
	for len(r.list) > 0 {
		h := <-r.list
		all = append(all, fmt.Sprintf("%s/%d", h.payload, h.attempt))
	}
	return all
}

func wantSeen(t *testing.T, r *recorder, want ...string) {
	t.Helper()
	if got := r.seen(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("handled %v, want %v", got, want)
	}
}

// numberedFrom is n payloads of a first delivery.
func numberedFrom(first, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%d/1", first+i))
	}
	return all
}

func TestOpenedTellsTheSettingsOfTheGroup(t *testing.T) {
	site := newSite(t, func(o *core.Options) { o.MaxAttempts = 9 })
	deadline := 7 * time.Second
	m := joinGroup(t, site.client(t, nil), SubscribeOptions{AckDeadline: &deadline, MaxInFlight: 12, Capacity: 100}, nil)
	other := joinGroup(t, site.client(t, nil), SubscribeOptions{}, nil)
	none := joinGroup(t, site.client(t, nil), SubscribeOptions{Group: "n", Ack: core.AckNone, MaxAttempts: 3}, nil)
	for _, test := range []struct {
		m    *groupMember
		want Opened
	}{
		{m, Opened{Group: true, Ack: core.AckExplicit, MaxInFlight: 12, AckDeadline: deadline, MaxAttempts: 9, Overflow: core.OverflowReject, Capacity: 100}},
		{other, Opened{Group: true, Ack: core.AckExplicit, MaxInFlight: 64, AckDeadline: deadline, MaxAttempts: 9, Overflow: core.OverflowReject, Capacity: 100}},
		{none, Opened{Group: true, Ack: core.AckNone, MaxInFlight: 64, AckDeadline: 30 * time.Second, MaxAttempts: 3, Overflow: core.OverflowDropOldest, Capacity: 10_000}},
	} {
		got := <-test.m.opened
		test.want.SubscriptionID, test.want.BrokerRunID, test.want.CapacityBytes = got.SubscriptionID, got.BrokerRunID, got.CapacityBytes
		if got != test.want {
			t.Errorf("opened %+v, want %+v", got, test.want)
		}
	}
}

func TestSettingsThatDifferAreRefused(t *testing.T) {
	site := newSite(t, nil)
	c := site.client(t, nil)
	joinGroup(t, c, SubscribeOptions{MaxAttempts: 3}, nil)
	err := c.Subscribe(within(t, 5*time.Second), SubscribeOptions{Group: "g", Patterns: []string{"a"}, MaxAttempts: 4}, nil)
	if !errors.Is(err, core.ErrGroupConfig) {
		t.Errorf("got %v, want %v", err, core.ErrGroupConfig)
	}
}

func TestSettingsThatMakeNoSense(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	for name, o := range map[string]SubscribeOptions{
		"max_in_flight":              {Group: "g", MaxInFlight: -1},
		"max_attempts":               {Group: "g", MaxAttempts: -1},
		"parallel":                   {Parallel: -1},
		"grace":                      {Group: "g", Grace: -1},
		"ack_deadline":               {Group: "g", AckDeadline: new(-time.Second)},
		"broadcast with acks":        {Ack: core.AckExplicit},
		"broadcast with a deadline":  {AckDeadline: new(time.Second)},
		"group with policy of evict": {Group: "g", Overflow: core.OverflowEvict},
	} {
		t.Run(name, func(t *testing.T) {
			o.Patterns = []string{"a"}
			if err := c.Subscribe(within(t, 5*time.Second), o, nil); !errors.Is(err, core.ErrProtocol) {
				t.Errorf("got %v, want %v", err, core.ErrProtocol)
			}
		})
	}
}

// TestWhatAHandlerReturns: nil acknowledges, a NackError gives back as it says, and the subscription goes on.
func TestWhatAHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, func(o *core.Options) { o.MaxAttempts = 2 })
		released := false
		r := newRecorder(func(payload string, attempt uint32) error {
			switch payload {
			case "again":
				if attempt == 1 {
					return &NackError{core.Nack{Delay: new(20 * time.Second)}}
				}
			case "soon":
				if attempt == 1 {
					return fmt.Errorf("wrapped: %w", &NackError{core.Nack{}})
				}
			case "unstarted":
				if !released {
					released = true
					return &NackError{core.Nack{Action: core.NackRelease}}
				}
			case "never":
				return &NackError{core.Nack{Action: core.NackReject, Reason: "no such \xff"}}
			case "always":
				return &NackError{core.Nack{Delay: new(time.Duration(0)), Reason: "still bad"}}
			}
			return nil
		})
		letters := subscribe(t, site.client(t, nil), SubscribeOptions{Patterns: []string{"$tb.dlq.g"}})
		joinGroup(t, site.client(t, nil), SubscribeOptions{}, r.handle)
		site.send(t, "good")
		synctest.Wait()
		wantSeen(t, r, "good/1")
		site.wantBooks(t, 1, 0, 0) // a lone ack goes out at once
		site.send(t, "again", "soon", "unstarted", "never", "always")
		synctest.Wait()
		wantSeen(t, r, "again/1", "soon/1", "unstarted/1", "never/1", "always/1", "unstarted/1", "always/2")
		site.wantBooks(t, 2, 2, 0)
		time.Sleep(2 * time.Second)
		wantSeen(t, r, "soon/2")
		time.Sleep(20 * time.Second)
		wantSeen(t, r, "again/2")
		st := site.wantBooks(t, 4, 0, 0)
		if st.DeadLetters != 2 || st.Ineffective != 0 {
			t.Errorf("%d dead letters, %d replies without effect", st.DeadLetters, st.Ineffective)
		}
		for _, want := range []string{"never 1 rejected: no such \uFFFD", "always 2 max_attempts: still bad"} {
			d := letters.take(t, 1)[0]
			if got := fmt.Sprintf("%s %s %s", d.Payload, d.Headers[core.HeaderAttempts], d.Headers[core.HeaderReason]); got != want {
				t.Errorf("dead letter %q, want %q", got, want)
			}
		}
	})
}

// TestErrStopIsExact: N handed out, exactly those acknowledged, the rest at the others at once and as if never delivered.
func TestErrStopIsExact(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				left := n
				r := newRecorder(func(string, uint32) error {
					if left--; left == 0 {
						return ErrStop
					}
					return nil
				})
				m := joinGroup(t, site.client(t, nil), SubscribeOptions{MaxInFlight: 80}, r.handle)
				site.sendNumbered(t, 0, 3*n)
				start := time.Now()
				if err := m.end(t); err != nil {
					t.Fatalf("Subscribe returned %v", err)
				}
				if took := time.Since(start); took > 0 {
					t.Errorf("it took %v", took)
				}
				wantSeen(t, r, numberedFrom(0, n)...)
				st := site.wantBooks(t, uint64(n), 2*n, 0)
				if st.Members != 0 || st.Ineffective != 0 {
					t.Errorf("%+v", st)
				}
				rest := newRecorder(nil)
				joinGroup(t, site.client(t, nil), SubscribeOptions{}, rest.handle)
				synctest.Wait()
				wantSeen(t, rest, numberedFrom(n, 2*n)...)
				site.wantBooks(t, uint64(3*n), 0, 0)
			})
		})
	}
}

// TestCancelLeavesCleanly: what was not begun with is at the others while the handler still works; and that one's work counts.
func TestCancelLeavesCleanly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		r := newRecorder(func(payload string, _ uint32) error {
			if payload == "2" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		m := joinGroup(t, site.client(t, nil), SubscribeOptions{MaxInFlight: 30}, r.handle)
		site.sendNumbered(t, 0, 50)
		synctest.Wait()
		site.wantBooks(t, 2, 18, 30)
		rest := newRecorder(nil)
		joinGroup(t, site.client(t, nil), SubscribeOptions{MaxInFlight: 1}, rest.handle)
		synctest.Wait()
		wantSeen(t, rest, numberedFrom(32, 18)...)
		m.cancel()
		synctest.Wait()
		wantSeen(t, r, numberedFrom(0, 3)...)
		wantSeen(t, rest, numberedFrom(3, 29)...)
		site.wantBooks(t, 49, 0, 1)
		if len(m.result) > 0 {
			t.Fatal("Subscribe has returned while its handler works")
		}
		start := time.Now()
		if err := m.end(t); !errors.Is(err, context.Canceled) {
			t.Errorf("Subscribe returned %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		site.wantBooks(t, 50, 0, 0)
		wantSeen(t, rest)
	})
}

// TestGrace: when it is over, the delivery of a handler that still works goes to others, and Subscribe waits for the handler.
func TestGrace(t *testing.T) {
	for _, grace := range []time.Duration{0, 2 * time.Second} {
		t.Run(grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				m := joinGroup(t, site.client(t, nil), SubscribeOptions{Grace: grace}, func(*Delivery) error {
					time.Sleep(time.Minute)
					return nil
				})
				site.send(t, "long", "next")
				synctest.Wait()
				start := time.Now()
				m.cancel()
				rest := newRecorder(nil)
				joinGroup(t, site.client(t, nil), SubscribeOptions{}, rest.handle)
				synctest.Wait()
				wantSeen(t, rest, "next/1")
				if grace == 0 {
					grace = 5 * time.Second
				}
				time.Sleep(grace - 1)
				wantSeen(t, rest)
				time.Sleep(10 * time.Millisecond)
				wantSeen(t, rest, "long/1") // a clean leave charges no attempt
				if err := m.end(t); !errors.Is(err, context.Canceled) {
					t.Errorf("Subscribe returned %v", err)
				}
				if took := time.Since(start); took != time.Minute {
					t.Errorf("Subscribe returned after %v, its handler after a minute", took)
				}
				st := site.wantBooks(t, 2, 0, 0)
				if st.Ineffective > 1 {
					t.Errorf("%d replies without effect", st.Ineffective)
				}
			})
		})
	}
}

// TestAFailedHandlerEndsSubscribe: its delivery counts as an attempt, what is behind it does not.
func TestAFailedHandlerEndsSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		full := errors.New("no space left on device")
		r := newRecorder(func(payload string, _ uint32) error {
			if payload == "2" {
				return full
			}
			return nil
		})
		m := joinGroup(t, site.client(t, nil), SubscribeOptions{}, r.handle)
		site.sendNumbered(t, 0, 6)
		if err := m.end(t); !errors.Is(err, full) {
			t.Errorf("Subscribe returned %v", err)
		}
		wantSeen(t, r, numberedFrom(0, 3)...)
		site.wantBooks(t, 2, 4, 0)
		rest := newRecorder(nil)
		joinGroup(t, site.client(t, nil), SubscribeOptions{}, rest.handle)
		synctest.Wait()
		wantSeen(t, rest, "2/2", "3/1", "4/1", "5/1")
	})
}

// TestNackAndStop: the delivery is given back, and that was the last.
func TestNackAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		r := newRecorder(func(string, uint32) error {
			return errors.Join(ErrStop, &NackError{core.Nack{Action: core.NackRelease}})
		})
		m := joinGroup(t, site.client(t, nil), SubscribeOptions{}, r.handle)
		site.sendNumbered(t, 0, 3)
		if err := m.end(t); err != nil {
			t.Errorf("Subscribe returned %v", err)
		}
		wantSeen(t, r, "0/1")
		site.wantBooks(t, 0, 3, 0)
	})
}

func TestNackErrorText(t *testing.T) {
	for _, test := range []struct {
		nack core.Nack
		want string
	}{
		{core.Nack{}, "given back"},
		{core.Nack{Action: core.NackRelease}, "given back unstarted"},
		{core.Nack{Action: core.NackReject, Reason: "no such order"}, "rejected: no such order"},
	} {
		if got := (&NackError{test.nack}).Error(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// TestBroadcastHandlers: a broadcast subscription can be stopped, and has nothing to give back.
func TestBroadcastHandlers(t *testing.T) {
	nack := &NackError{core.Nack{}}
	for _, test := range []struct {
		name     string
		parallel int
		result   error
		want     error
	}{
		{"stop", 0, ErrStop, nil},
		{"stop in parallel", 4, ErrStop, nil},
		{"nack", 0, nack, nack},
		{"nack in parallel", 4, nack, nack},
	} {
		t.Run(test.name, func(t *testing.T) {
			site := newSite(t, nil)
			opened := make(chan struct{})
			result := make(chan error, 1)
			handled := 0
			go func() {
				result <- site.client(t, nil).Subscribe(within(t, 10*time.Second), SubscribeOptions{
					Patterns: []string{"t"}, Parallel: test.parallel, OnOpened: func(Opened) { close(opened) },
				}, func(*Delivery) error {
					handled++
					return test.result
				})
			}()
			<-opened
			site.send(t, "1")
			if err := <-result; !errors.Is(err, test.want) {
				t.Errorf("Subscribe returned %v, want %v", err, test.want)
			}
			if handled != 1 {
				t.Errorf("%d handled", handled)
			}
		})
	}
}

// TestAckNone: there is nothing to reply to, nothing more is handed out after the end, and the member leaves cleanly.
func TestAckNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		r := newRecorder(func(payload string, _ uint32) error {
			if payload == "9" {
				return ErrStop
			}
			return nil
		})
		m := joinGroup(t, site.client(t, nil), SubscribeOptions{Ack: core.AckNone}, r.handle)
		events := subscribe(t, site.client(t, nil), SubscribeOptions{Patterns: []string{"$tb.event.subscription.closed"}})
		site.sendNumbered(t, 0, 10)
		if err := m.end(t); err != nil {
			t.Errorf("Subscribe returned %v", err)
		}
		wantSeen(t, r, numberedFrom(0, 10)...)
		if st := site.wantBooks(t, 10, 0, 0); st.Ineffective != 0 {
			t.Errorf("%d replies without effect", st.Ineffective)
		}
		if d := events.take(t, 1)[0]; !contains(d.Payload, `"reason":"left"`) {
			t.Errorf("told %s", d.Payload)
		}
	})
}

func contains(payload []byte, part string) bool { return strings.Contains(string(payload), part) }
