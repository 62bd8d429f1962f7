package rpc

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestReconnectRestoresTheMember: same id, group, patterns and settings; so that two members share what they shared before.
func TestReconnectRestoresTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		o := SubscribeOptions{
			Patterns: []string{"job.*", "t"}, ClientName: "worker", MaxInFlight: 3, AckDeadline: new(7 * time.Second), MaxAttempts: 2,
			Capacity: 500, Overflow: core.OverflowDropNewest,
		}
		first, second := newRecorder(nil), newRecorder(nil)
		one := joinGroup(t, site.client(t, nil), o, first.handle)
		two := joinGroup(t, site.client(t, nil), o, second.handle)
		before := []Opened{<-one.opened, <-two.opened}
		site.kill(t)
		time.Sleep(time.Minute)
		site.start(t)
		after := []Opened{<-one.opened, <-two.opened}
		for i := range before {
			before[i].BrokerRunID = after[i].BrokerRunID
			if before[i] != after[i] {
				t.Errorf("opened as %+v, then as %+v", before[i], after[i])
			}
		}
		site.sendNumbered(t, 0, 200)
		synctest.Wait()
		a, b := first.seen(), second.seen()
		if len(a) == 0 || len(b) == 0 {
			t.Errorf("%d and %d handled", len(a), len(b))
		}
		all := slices.Concat(a, b)
		want := numberedFrom(0, 200)
		slices.Sort(all)
		slices.Sort(want)
		if !slices.Equal(all, want) {
			t.Errorf("handled %v", all)
		}
		site.wantBooks(t, 200, 0, 0)
	})
}

// TestAResultOfAnOldStreamIsDropped: on the new stream its number is another message's.
func TestAResultOfAnOldStreamIsDropped(t *testing.T) {
	for _, test := range []struct {
		parallel int
		result   error
	}{{0, nil}, {2, nil}, {2, &NackError{core.Nack{Action: core.NackReject}}}} {
		t.Run(fmt.Sprintf("parallel=%d, %v", test.parallel, test.result), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				release := map[string]chan error{"a": make(chan error, 1), "c": make(chan error, 1)}
				m := joinGroup(t, site.client(t, nil), SubscribeOptions{Parallel: test.parallel}, func(d *Delivery) error {
					return <-release[string(d.Payload)]
				})
				<-m.opened
				site.send(t, "a")
				synctest.Wait()
				site.kill(t)
				site.start(t)
				if test.parallel == 0 {
					release["a"] <- test.result // only then it learns of the loss
				}
				<-m.opened
				site.send(t, "c")
				synctest.Wait()
				if test.parallel > 0 {
					release["a"] <- test.result
				}
				synctest.Wait()
				if st := site.wantBooks(t, 0, 0, 1); st.Ineffective != 0 || st.DeadLetters != 0 {
					t.Errorf("%+v", st)
				}
				release["c"] <- nil
				synctest.Wait()
				site.wantBooks(t, 1, 0, 0)
			})
		})
	}
}

// TestTakenOverMemberEnds and does not come back, and its results have no effect.
func TestTakenOverMemberEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		r := newRecorder(func(string, uint32) error {
			time.Sleep(time.Second)
			return nil
		})
		first := joinGroup(t, site.client(t, nil), SubscribeOptions{ID: "w"}, r.handle)
		site.sendNumbered(t, 0, 3)
		synctest.Wait()
		second := newRecorder(nil)
		joinGroup(t, site.client(t, nil), SubscribeOptions{ID: "w"}, second.handle)
		var ended *core.EndedError
		if err := first.end(t); !errors.As(err, &ended) || ended.Reason != core.EndReplaced {
			t.Errorf("Subscribe returned %v", err)
		}
		wantSeen(t, second, "0/2", "1/2", "2/2")
		site.wantBooks(t, 3, 0, 0)
	})
}

// deliver sends numbered messages as one frame.
func deliver(stream fakeSubscribeStream, first uint64, n int) error {
	frame := &tinybrokerv1.SubscribeResponse{FirstSequence: first, Attempt: 1}
	for i := range n {
		frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: "t", Payload: []byte(fmt.Sprint(first + uint64(i)))})
	}
	return stream.Send(frame)
}

func openedMember() *tinybrokerv1.Opened {
	return &tinybrokerv1.Opened{
		Mode: tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE, AckMode: tinybrokerv1.AckMode_ACK_MODE_EXPLICIT, MaxInFlight: 1 << 16,
	}
}

// TestWhatAMemberSays: each delivery is acknowledged once, in ranges, and then come leave and the half-close.
func TestWhatAMemberSays(t *testing.T) {
	const n = 20_000
	said := make(chan []*tinybrokerv1.SubscribeRequest, 1)
	f := &fakeBroker{subscribe: func(_ int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
		if err := sendOpened(stream, openedMember()); err != nil {
			return err
		}
		for first := uint64(1); first < n; first += 500 {
			if err := deliver(stream, first, 500); err != nil {
				return err
			}
		}
		var all []*tinybrokerv1.SubscribeRequest
		for {
			request, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				said <- all
				return sendClosed(stream, tinybrokerv1.CloseReason_CLOSE_REASON_LEFT, 0)
			}
			if err != nil {
				return err
			}
			all = append(all, request)
		}
	}}
	handled := 0
	err := f.client(t, nil).Subscribe(within(t, 20*time.Second), SubscribeOptions{Group: "g", Patterns: []string{"t"}}, func(*Delivery) error {
		if handled++; handled == n-250 {
			return ErrStop
		}
		return nil
	})
	if err != nil {
		t.Fatalf("Subscribe returned %v", err)
	}
	all := <-said
	next, acks := uint64(1), 0
	for _, r := range all[:len(all)-1] {
		acks++
		for _, rg := range rangesFromProto(r.GetAck().GetRanges()) {
			if rg.First != next {
				t.Fatalf("%v after %d", rg, next-1)
			}
			next = rg.Last + 1
		}
	}
	if next != n-250+1 || acks > n/10 {
		t.Errorf("%d acknowledged by %d requests, want %d by few", next-1, acks, n-250)
	}
	if last := all[len(all)-1]; last.GetLeave() == nil {
		t.Errorf("the last request is %v", last)
	}
}

// TestLeavingWithoutAnAnswer is bounded, and said to be uncertain.
func TestLeavingWithoutAnAnswer(t *testing.T) {
	for _, test := range []struct {
		name  string
		after time.Duration
		want  string
		serve func(fakeSubscribeStream) error
	}{
		{"silent", leaveTimeout, "the last acknowledgements may be lost: the broker did not confirm them within 5s", func(stream fakeSubscribeStream) error {
			<-stream.Context().Done()
			return nil
		}},
		{"going away", 0, "the last acknowledgements may be lost: broker is draining", func(fakeSubscribeStream) error { return toStatus(core.ErrDraining) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeBroker{subscribe: func(_ int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
					if err := sendOpened(stream, openedMember()); err != nil {
						return err
					}
					if err := deliver(stream, 1, 1); err != nil {
						return err
					}
					if _, err := stream.Recv(); err != nil {
						return err
					}
					return test.serve(stream)
				}}
				m := joinGroup(t, f.client(t, nil), SubscribeOptions{}, func(*Delivery) error { return ErrStop })
				start := time.Now()
				if err := m.end(t); err == nil || err.Error() != test.want {
					t.Errorf("Subscribe returned %v", err)
				}
				if took := time.Since(start); took != test.after {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestABrokerWithoutGroups would make every member handle every message.
func TestABrokerWithoutGroups(t *testing.T) {
	f := &fakeBroker{subscribe: func(_ int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
		if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}}
	err := f.client(t, nil).Subscribe(within(t, 5*time.Second), SubscribeOptions{Group: "g", Patterns: []string{"t"}}, nil)
	if !errors.Is(err, core.ErrProtocol) {
		t.Errorf("Subscribe returned %v", err)
	}
}

// TestAcksAllocateNothing each: there is an allocation for the request, not for what it names.
func TestAcksAllocateNothing(t *testing.T) {
	m := &membership{acks: true, wake: make(chan struct{}, 1)}
	var u utterance
	n := uint64(0)
	allocs := testing.AllocsPerRun(100, func() {
		for range 1000 {
			n++
			if !m.begin(n) {
				t.Fatal("not begun")
			}
			m.done(&Delivery{Sequence: n}, verdict{}, false)
		}
		if !m.collect(&u) || len(appendAck(nil, joined(u.acks))) > 16 {
			t.Fatal("not one range")
		}
	})
	if allocs > 3 {
		t.Errorf("%v allocations for 1000 acknowledgements", allocs)
	}
}

// TestOneGoroutineAMember beside those of gRPC and the caller, however much is in flight.
func TestOneGoroutineAMember(t *testing.T) {
	site := newSite(t, nil)
	c := site.client(t, nil)
	release := make(chan struct{})
	handle := func(*Delivery) error {
		<-release
		return nil
	}
	joinGroup(t, c, SubscribeOptions{MaxInFlight: 1000}, handle)
	before := runtime.NumGoroutine()
	site.sendNumbered(t, 0, 1000)
	eventually(t, "all are in flight", func() bool { return groupBooks(t, site.broker, "g").InFlight == 1000 })
	// Those that have published them may take a moment to end.
	eventually(t, "there are no more goroutines than without", func() bool { return runtime.NumGoroutine() <= before })
	close(release)
	eventually(t, "all are acknowledged", func() bool { return groupBooks(t, site.broker, "g").Acked == 1000 })
}
