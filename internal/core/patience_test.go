package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// drainSlowly takes every message of s, pausing after each frame, until stop is closed and the queue is empty.
func drainSlowly(s *Subscription, maxBytes int64, pause time.Duration, stop <-chan struct{}) []string {
	var d Delivery
	var got []string
	for {
		for s.Take(&d, maxBytes) {
			got = append(got, records(&d)...)
			s.Settle(&d, true)
			time.Sleep(pause)
		}
		select {
		case <-s.Wake():
		case <-s.Done():
			return got
		case <-stop:
			if n, _ := s.Queued(); n == 0 {
				return got
			}
		}
	}
}

func TestAPatientPublisherIsSlowedInsteadOfEvicting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 100})
		stop := make(chan struct{})
		var got []string
		var wg sync.WaitGroup
		wg.Go(func() { got = drainSlowly(s, 40, 10*time.Millisecond, stop) })
		posts := numbered("t", 0, 5000)
		begun := time.Now()
		for i := 0; i < len(posts); i += 1000 { // a frame is ten times the queue
			batch := batchOf(posts[i : i+1000]...)
			batch.MaxWait = testPatience
			publishBatch(t, b, batch)
		}
		if took := time.Since(begun); took < time.Second {
			t.Errorf("5000 messages for a reader that takes about ten in 10 ms went in %v", took)
		}
		close(stop)
		wg.Wait()
		wantPayloads(t, got, payloads(posts))
	})
}

func TestAFrozenReceiverCostsPatienceOnce(t *testing.T) {
	for _, policy := range []OverflowPolicy{OverflowEvict, OverflowDropOldest, OverflowDropNewest} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				frozen := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 100, Overflow: policy})
				begun := time.Now()
				for i := range 20 {
					batch := batchOf(numbered("t", i*50, 50)...)
					batch.MaxWait = testPatience
					if r := publishBatch(t, b, batch); r[0].Accepted != 50 {
						t.Fatalf("batch %d came back as %+v", i, r[0])
					}
				}
				if took := time.Since(begun); took != testPatience {
					t.Errorf("a frozen receiver cost %v, want max_wait once, %v", took, testPatience)
				}
				if policy == OverflowEvict {
					wantEnded(t, frozen, EndEvicted, frozen.Ending().Lost)
				} else if n, _ := frozen.Queued(); n != 100 {
					t.Errorf("%d messages queued, want 100", n)
				}
			})
		})
	}
}

func TestTheLastQuarterIsForTheImpatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 100})
		patient := make(chan error)
		go func() {
			batch := batchOf(numbered("t", 0, 200)...)
			batch.MaxWait = time.Hour
			patient <- b.Publish(context.Background(), batch)
		}()
		synctest.Wait()
		if n, _ := s.Queued(); n != 75 {
			t.Fatalf("a patient publisher queued %d of 100, want 75", n)
		}
		for range 25 {
			publish(t, b, post{topic: "t", payload: "urgent"})
		}
		var got []string
		for len(got) < 225 {
			got = append(got, takeAll(s)...)
			synctest.Wait()
		}
		if err := <-patient; err != nil {
			t.Error(err)
		}
	})
}

func TestWaitingEndsWith(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(b *Broker, s *Subscription, cancel func())
		want error
	}{
		{"the publisher", func(_ *Broker, _ *Subscription, cancel func()) { cancel() }, context.Canceled},
		{"the broker", func(b *Broker, _ *Subscription, _ func()) { go b.Drain(time.Time{}) }, ErrDraining},
		{"the receiver", func(_ *Broker, s *Subscription, _ func()) { s.Close() }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 4})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				batch := batchOf(numbered("t", 0, 10)...)
				batch.MaxWait = time.Hour
				done := make(chan error)
				go func() { done <- b.Publish(ctx, batch) }()
				synctest.Wait()
				begun := time.Now()
				c.end(b, s, cancel)
				if err := <-done; !errors.Is(err, c.want) {
					t.Errorf("publish returned %v, want %v", err, c.want)
				}
				if waited := time.Since(begun); waited != 0 {
					t.Errorf("publish went on waiting for %v", waited)
				}
				r := batch.Runs[0]
				if c.want != nil && (r.Accepted != 3 || !errors.Is(r.Err, c.want)) {
					t.Errorf("run came back as %+v, want 3 accepted", r)
				}
				if c.want == nil && (r.Accepted != 10 || r.Err != nil) {
					t.Errorf("run came back as %+v, want all accepted", r)
				}
			})
		})
	}
}

func TestAHealthyReaderIsNotEvictedByOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		healthy := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 100})
		stop := make(chan struct{})
		var got []string
		var wg sync.WaitGroup
		wg.Go(func() { got = drainSlowly(healthy, 64<<10, time.Millisecond, stop) })
		posts := numbered("t", 0, 3000)
		publish(t, b, posts...) // no patience, and thirty times the queue
		close(stop)
		wg.Wait()
		wantPayloads(t, got, payloads(posts))
	})
}

func TestAFrozenReaderCostsTheImpatientNextToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		frozen := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 100})
		begun := time.Now()
		for i := range 50 {
			publish(t, b, numbered("t", i*1000, 1000)...)
		}
		if took := time.Since(begun); took > frameGrace {
			t.Errorf("a frozen receiver held up a publisher without patience for %v", took)
		}
		wantEnded(t, frozen, EndEvicted, frozen.Ending().Lost)

		// One that was behind before gets no grace at all.
		behind := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 100})
		publish(t, b, numbered("t", 0, 60)...)
		begun = time.Now()
		publish(t, b, numbered("t", 0, 60)...)
		if took := time.Since(begun); took != 0 {
			t.Errorf("a slow receiver held up a publisher without patience for %v", took)
		}
		wantEnded(t, behind, EndEvicted, 120)
	})
}

// All receivers get a topic's messages in the same order although publishers wait in the middle of their batches for one
// of them.
func TestPiecesKeepOneOrderForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		var got [4][]string
		stop := make(chan struct{})
		var readers, publishers sync.WaitGroup
		for i := range got {
			s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 8 << i})
			readers.Go(func() { got[i] = drainSlowly(s, 16<<i, time.Duration(i+1)*time.Millisecond, stop) })
		}
		for p := range 5 {
			publishers.Go(func() {
				for i := range 20 {
					var posts []post
					for j := range 30 {
						posts = append(posts, post{topic: "t", payload: fmt.Sprintf("%d:%d", p, i*30+j)})
					}
					batch := batchOf(posts...)
					batch.MaxWait = time.Hour
					publishBatch(t, b, batch)
				}
			})
		}
		publishers.Wait()
		close(stop)
		readers.Wait()
		if len(got[0]) != 5*20*30 {
			t.Fatalf("%d messages, want %d", len(got[0]), 5*20*30)
		}
		for i := 1; i < len(got); i++ {
			wantPayloads(t, got[i], got[0])
		}
		next := map[string]int{}
		for _, m := range got[0] {
			p, n, _ := strings.Cut(m, ":")
			if n != fmt.Sprint(next[p]) {
				t.Fatalf("publisher %s: message %s after %d others", p, n, next[p])
			}
			next[p]++
		}
	})
}

// A queue that is full in bytes while it has slots left is waited for like any other, for the size of the message at hand.
func TestWaitingForBytes(t *testing.T) {
	for _, patience := range []time.Duration{0, testPatience} {
		t.Run(patience.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, func(o *Options) { o.ConsumerCapacityBytes = 4096 })
				s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
				big := strings.Repeat("x", 1200)
				begun := time.Now()
				for range 3 {
					publish(t, b, post{topic: "t", payload: big})
				}
				batch := batchOf(post{topic: "t", payload: big})
				batch.MaxWait = patience
				publishBatch(t, b, batch)
				if took := time.Since(begun); took != patience {
					t.Errorf("publishing into a full queue took %v, want %v", took, patience)
				}
				wantEnded(t, s, EndEvicted, 4)
			})
		})
	}
}

// TestPatienceIsOnesOwn: that somebody with next to no patience has waited in vain says nothing of a receiver that takes its time, and others wait for it.
// Who waits as long as somebody has in vain is not held up.
func TestPatienceIsOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.Close()
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Capacity: 100})
		publish(t, b, numbered("t", 0, 75)...)
		one := func(patience time.Duration) time.Duration {
			batch := batchOf(post{topic: "t", payload: "x"})
			batch.MaxWait = patience
			begun := time.Now()
			publishBatch(t, b, batch)
			return time.Since(begun)
		}
		if took := one(time.Millisecond); took != time.Millisecond {
			t.Errorf("the first one waited %s", took)
		}
		if took := one(time.Millisecond); took != 0 {
			t.Errorf("the second one waited %s", took)
		}
		stop := make(chan struct{})
		var reading sync.WaitGroup
		reading.Go(func() { // slow and steady
			var d Delivery
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
				if s.Take(&d, 1) {
					s.Settle(&d, true)
				}
			}
		})
		for range 60 {
			if took := one(30 * time.Second); took > 5*time.Second {
				t.Errorf("a message waited %s", took)
			}
		}
		close(stop)
		reading.Wait()
		if reason := s.Ending().Reason; reason != EndNone {
			t.Errorf("the reader was ended: %v", reason)
		}
	})
}

// TestPatienceOfOneBatch: two full groups cost a batch that goes from one to the other and back its patience once each.
func TestPatienceOfOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.Close()
		var posts []post
		for _, topic := range []string{"x", "y"} {
			join(t, b, JoinOptions{Group: topic, Patterns: []string{topic}, Settings: GroupSettings{Capacity: 1}})
			publish(t, b, post{topic: topic, payload: "full"})
		}
		for i := range 10 {
			posts = append(posts, post{topic: []string{"x", "y"}[i%2], payload: fmt.Sprint(i)})
		}
		batch := batchOf(posts...)
		batch.MaxWait = time.Second
		begun := time.Now()
		for i, r := range publishBatch(t, b, batch) {
			if r.Accepted != 0 || !errors.Is(r.Err, ErrGroupFull) {
				t.Errorf("run %d: %+v", i, r)
			}
		}
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("the batch was held back for %v, want its patience once a group", took)
		}
	})
}

// TestPatienceIsForAllAtOnce: one message waits for all its receivers together.
func TestPatienceIsForAllAtOnce(t *testing.T) {
	for _, policy := range []OverflowPolicy{OverflowEvict, OverflowDropNewest} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				defer b.Close()
				for range 8 {
					subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Capacity: 4, Overflow: policy})
				}
				publish(t, b, numbered("t", 0, 4)...)
				begun := time.Now()
				for range 5 {
					batch := batchOf(post{topic: "t", payload: "x"})
					batch.MaxWait = time.Second
					publishBatch(t, b, batch)
				}
				if took := time.Since(begun); took != time.Second {
					t.Errorf("eight frozen receivers cost %v, want max_wait once", took)
				}
			})
		})
	}
}

// TestPatienceAmongRivals: a publisher whose room others are quicker to take waits no longer for that.
func TestPatienceAmongRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.Close()
		m := join(t, b, JoinOptions{Group: "g", Patterns: []string{"t"}, MaxInFlight: 1, Settings: GroupSettings{Capacity: 4}})
		stop := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { // five a second
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
				}
				if g, ok := take(m); ok {
					m.Ack(g.all())
				}
			}
		})
		var taken, refused int
		var mu sync.Mutex
		var publishing sync.WaitGroup
		for range 20 {
			publishing.Go(func() {
				for range 10 {
					batch := batchOf(post{topic: "t", payload: "x"})
					batch.MaxWait = 500 * time.Millisecond
					begun := time.Now()
					r := publishBatch(t, b, batch)[0]
					took := time.Since(begun)
					mu.Lock()
					if r.Accepted == 1 {
						taken++
					} else {
						refused++
					}
					mu.Unlock()
					if took > 500*time.Millisecond || r.Err != nil && took != 500*time.Millisecond {
						t.Errorf("held back for %v, then %v", took, r.Err)
					}
				}
			})
		}
		publishing.Wait()
		close(stop)
		all.Wait()
		if taken == 0 || refused == 0 || taken+refused != 200 {
			t.Errorf("%d taken, %d refused", taken, refused)
		}
	})
}
