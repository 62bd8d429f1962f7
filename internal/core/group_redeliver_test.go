package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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

// Without acks there are no deadlines, and none can be asked for: what is being written goes to nobody else until the stream is given up.
func TestNoDeadlinesWithoutAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.Close()
		s := GroupSettings{Ack: AckNone}
		slow, other := join(t, b, JoinOptions{Settings: s}), join(t, b, JoinOptions{Settings: s})
		publish(t, b, post{topic: "t", payload: "1"})
		var d Delivery
		if !slow.Take(&d, 1) {
			t.Fatal("nothing to take")
		}
		slow.Extend(time.Second, SequenceRange{1, 1})
		time.Sleep(b.options.SendTimeout / 2)
		synctest.Wait()
		if g, ok := take(other); ok {
			t.Errorf("another member got %q, attempt %d, while it is being written", g.payloads, g.attempt)
		}
		slow.Settle(&d, true)
		wantBooks(t, b, 1, 0, 0)
	})
}
