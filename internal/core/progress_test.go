package core

import (
	"testing"
	"testing/synctest"
	"time"
)

// transmission is a delivery that its member was given, and which is not written yet.
type transmission struct {
	SequenceRange
	hold Hold
}

// send takes a delivery for a transport that will write it later.
func send(t *testing.T, m *Member) *transmission {
	t.Helper()
	var d Delivery
	if !m.Take(&d, 64<<10) {
		t.Fatal("there is nothing to take")
	}
	s := &transmission{SequenceRange: SequenceRange{d.FirstSequence, d.FirstSequence + uint64(d.Count) - 1}}
	d.Hold(&s.hold)
	m.Settle(&d, true)
	return s
}

// wantExpiry waits until a delivery expires, and fails unless it takes that long.
func wantExpiry(t *testing.T, b *Broker, want time.Duration) {
	t.Helper()
	start, before := time.Now(), groupStats(t, b, "g").Expired
	for groupStats(t, b, "g").Expired == before && time.Since(start) < time.Hour {
		time.Sleep(time.Second)
		synctest.Wait()
	}
	if got := time.Since(start); got != want {
		t.Errorf("the deadline passed after %v, want %v", got, want)
	}
}

// TestDeadlineOfWhatIsOnItsWay: it runs from the moment that the transport has written the delivery, however long that takes, as long as the
// stream takes something.
func TestDeadlineOfWhatIsOnItsWay(t *testing.T) {
	const deadline, part = 30 * time.Second, 20 * time.Second // as by default
	for _, test := range []struct {
		name string
		then func(m *Member, s *transmission)
		want time.Duration
	}{
		{"it is not written, nor anything else", func(*Member, *transmission) {}, deadline},
		{"it is written at once", func(_ *Member, s *transmission) { s.hold.Release() }, deadline},
		{"it is written later", func(_ *Member, s *transmission) {
			time.Sleep(part)
			s.hold.Release()
		}, deadline},
		{"it is written in three parts", func(m *Member, s *transmission) {
			for range 2 {
				time.Sleep(part)
				m.Progress()
			}
			time.Sleep(part)
			s.hold.Release()
		}, deadline},
		{"a part of it is written, and no more", func(m *Member, _ *transmission) {
			time.Sleep(part)
			m.Progress()
		}, deadline},
		{"a part of it is written, and it is told to be extended", func(m *Member, s *transmission) {
			m.Extend(0, s.SequenceRange)
			time.Sleep(part)
			m.Progress()
		}, deadline},
		{"it is extended for long, then written", func(m *Member, s *transmission) {
			m.Extend(time.Minute, s.SequenceRange)
			time.Sleep(part)
			s.hold.Release()
		}, time.Minute - part},
		{"it is extended for less, then written", func(m *Member, s *transmission) {
			m.Extend(deadline, s.SequenceRange)
			time.Sleep(part)
			s.hold.Release()
		}, deadline},
		{"it is written, then extended for less", func(m *Member, s *transmission) {
			time.Sleep(part)
			s.hold.Release()
			m.Extend(time.Second, s.SequenceRange)
		}, time.Second},
		{"half of it is acknowledged before it is written", func(m *Member, s *transmission) {
			m.Ack(SequenceRange{s.First, s.First})
			time.Sleep(part)
			s.hold.Release()
		}, deadline},
		{"half of it is acknowledged when it is written", func(m *Member, s *transmission) {
			time.Sleep(part)
			s.hold.Release()
			m.Ack(SequenceRange{s.First, s.First})
		}, deadline},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				time.Sleep(time.Second)
				m := join(t, b, JoinOptions{})
				publish(t, b, numbered("t", 0, 2)...)
				s := send(t, m)
				test.then(m, s)
				if n := groupStats(t, b, "g").Expired; n != 0 {
					t.Fatalf("%d deliveries expired", n)
				}
				wantExpiry(t, b, test.want)
				s.hold.Release()
				// The next delivery of the same messages has nothing to do with the first.
				s = send(t, m)
				time.Sleep(part)
				s.hold.Release()
				wantExpiry(t, b, deadline)
			})
		})
	}
}

// TestWrittenBeforeItIsSettled: the transport may be quicker than the sender.
func TestWrittenBeforeItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		time.Sleep(time.Second)
		m := join(t, b, JoinOptions{})
		publish(t, b, numbered("t", 0, 2)...)
		var d Delivery
		var h Hold
		m.Take(&d, 1<<20)
		d.Hold(&h)
		h.Release()
		m.Settle(&d, true)
		wantExpiry(t, b, 30*time.Second)
		// And when the stream breaks, it lets go of what it has not written.
		m.Take(&d, 1<<20)
		d.Hold(&h)
		h.Release()
		m.Settle(&d, false)
		if st := groupStats(t, b, "g"); st.Pending != 2 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
		m.Take(&d, 1<<20)
		d.Hold(&h)
		m.Settle(&d, true)
		m.Close()
		h.Release()
		wantBooks(t, b, 0, 2, 0)
	})
}

// TestProgressIsNoStall: a member is stalled when its stream has taken nothing for the whole time, not when a frame takes long.
func TestProgressIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		timeout := b.Options().SendTimeout
		publish(t, b, numbered("t", 0, 2)...)
		state := func() string { return observe(t, b, Query{View: ViewMembers}).Members[0].State }
		var d Delivery
		m.Take(&d, 1<<20)
		for range 10 {
			time.Sleep(timeout - 1)
			m.Progress()
			if state := state(); state != StateActive {
				t.Errorf("state %s", state)
			}
		}
		time.Sleep(timeout - 1)
		synctest.Wait()
		if e := m.Ending(); e.Reason != EndNone || state() != StateStalled {
			t.Fatalf("ended as %+v, state %s", e, state())
		}
		time.Sleep(1)
		<-m.Done()
		if e := m.Ending(); e.Reason != EndStalled {
			t.Errorf("ended as %+v, want stalled", e)
		}
		m.Settle(&d, false)
	})
}

// TestOldProgressIsNone: a delivery waits from when it was taken, not from when the stream last took another.
func TestOldProgressIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		m.Progress()
		time.Sleep(time.Hour)
		publish(t, b, numbered("t", 0, 2)...)
		var d Delivery
		m.Take(&d, 1<<20)
		time.Sleep(b.Options().SendTimeout - 1)
		synctest.Wait()
		if e := m.Ending(); e.Reason != EndNone {
			t.Errorf("ended as %+v", e)
		}
		m.Settle(&d, true)
	})
}

// TestTheTransportDoesNotWait: for a group without deadlines, and for a part of a frame, it takes no lock.
func TestTheTransportDoesNotWait(t *testing.T) {
	none := time.Duration(0)
	for _, settings := range []GroupSettings{{Ack: AckNone}, {AckDeadline: &none}} {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{Settings: settings})
		publish(t, b, numbered("t", 0, 2)...)
		s := send(t, m)
		m.group.mu.Lock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.Progress()
			s.hold.Release()
		}()
		select {
		case <-done:
		case <-time.After(testPatience):
			t.Errorf("%+v: it waits for the group", settings)
		}
		m.group.mu.Unlock()
		<-done
	}
}
