package rpc

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestAFailedMessageKeepsItsPlaceAmongItsKey: what came with it has to wait for its next attempt, or for its end.
func TestAFailedMessageKeepsItsPlaceAmongItsKey(t *testing.T) {
	longer, shorter, none := 5*time.Second, 50*time.Millisecond, time.Duration(0)
	for _, test := range []struct {
		name    string
		nack    core.Nack
		limit   int // max_attempts
		ofKey   []string
		delayed time.Duration // at least, between the two attempts
		work    time.Duration // how long a handler takes
	}{
		{"backoff", core.Nack{}, 5, []string{"0/1", "1/1", "1/2", "2/1", "3/1", "4/1", "5/1", "6/1"}, 750 * time.Millisecond, 0},
		{"a pause of its own", core.Nack{Delay: &longer}, 5, []string{"0/1", "1/1", "1/2", "2/1", "3/1", "4/1", "5/1", "6/1"}, longer, 0},
		{"a pause shorter than the work", core.Nack{Delay: &shorter}, 5, []string{"0/1", "1/1", "1/2", "2/1", "3/1", "4/1", "5/1", "6/1"}, shorter, 40 * time.Millisecond},
		{"no pause", core.Nack{Delay: &none}, 5, []string{"0/1", "1/1", "1/2", "2/1", "3/1", "4/1", "5/1", "6/1"}, 0, 0},
		{"no more attempts", core.Nack{}, 1, []string{"0/1", "1/1", "2/1", "3/1", "4/1", "5/1", "6/1"}, 0, 0},
		{"rejected", core.Nack{Action: core.NackReject}, 5, []string{"0/1", "1/1", "2/1", "3/1", "4/1", "5/1", "6/1"}, 0, 0},
	} {
		for _, o := range []struct {
			name string
			SubscribeOptions
		}{
			{"one after the other", SubscribeOptions{}},
			{"flushed", SubscribeOptions{Flush: func() error { return nil }}},
			{"in parallel", SubscribeOptions{Parallel: 4}},
		} {
			t.Run(test.name+"/"+o.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					site := newSite(t, func(c *core.Options) { c.MaxAttempts = test.limit })
					r := newRecorder(func(payload string, attempt uint32) error {
						time.Sleep(test.work)
						if payload == "1" && attempt == 1 {
							return &NackError{test.nack}
						}
						return nil
					})
					site.sendRunTo(t, "g", 0)
					for i := range 6 {
						site.sendKeyed(t, "k", fmt.Sprint(i))
						site.sendKeyed(t, "", fmt.Sprint("plain", i))
						site.sendKeyed(t, "other", fmt.Sprint("other", i))
					}
					joinGroup(t, site.client(t, nil), o.SubscribeOptions, r.handle)
					time.Sleep(100 * time.Millisecond) // less than any pause
					site.sendKeyed(t, "k", "6")
					time.Sleep(time.Minute)
					var ofKey []string
					var at []time.Duration
					others := 0
					for len(r.list) > 0 {
						h := <-r.list
						if len(h.payload) > 1 {
							others++
							if h.at > 50*time.Millisecond && test.work == 0 {
								t.Errorf("%s waited for %v", h.payload, h.at)
							}
							continue
						}
						ofKey = append(ofKey, fmt.Sprintf("%s/%d", h.payload, h.attempt))
						at = append(at, h.at)
					}
					if !slices.Equal(ofKey, test.ofKey) || others != 12 {
						t.Errorf("handled %v and %d others, want %v and 12", ofKey, others, test.ofKey)
					}
					if got := at[2] - at[1]; got < test.delayed {
						t.Errorf("the next one came after %v", got)
					}
					if st := groupBooks(t, site.broker, "g"); st.Pending != 0 || st.InFlight != 0 || st.Ineffective != 0 {
						t.Errorf("%+v", st)
					}
				})
			})
		}
	}
}

// TestAnotherAttemptMayBeOfAnotherMessage: what a member had when it crashed comes with a higher attempt than what it had given back before that. It is not
// the failed message again, though that is of the same key and has failed with a lower one.
func TestAnotherAttemptMayBeOfAnotherMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		crashing, err := site.broker.Join(core.JoinOptions{Patterns: []string{"**"}, Group: "g"})
		if err != nil {
			t.Fatal(err)
		}
		for _, payload := range []string{"failing", "second", "crashed"} {
			site.sendKeyed(t, "k", payload)
		}
		var d core.Delivery
		for taken := 0; taken < 3; taken += d.Count {
			if !crashing.Take(&d, 1<<20) {
				t.Fatalf("%d taken", taken)
			}
			count := d.Count
			crashing.Settle(&d, true)
			d.Count = count
		}
		crashing.Nack(core.Nack{Action: core.NackRelease}, core.SequenceRange{First: 1, Last: 2})
		crashing.Close()
		r := newRecorder(func(payload string, attempt uint32) error {
			if payload == "failing" && attempt == 1 {
				return &NackError{core.Nack{}}
			}
			return nil
		})
		site.sendKeyed(t, "k", "last")
		joinGroup(t, site.client(t, nil), SubscribeOptions{}, r.handle)
		time.Sleep(time.Minute)
		if got, want := r.handled(), []string{"failing/1", "failing/2", "second/1", "crashed/2", "last/1"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
	})
}

// TestTwinsOfWhatHasGoneBack: a publisher has sent a message twice, as after a lost connection. The second is not the first that comes again.
func TestTwinsOfWhatHasGoneBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		r := newRecorder(func(payload string, attempt uint32) error {
			switch {
			case payload == "busy":
				time.Sleep(time.Second) // while the others come
			case payload == "failing" && attempt == 1:
				return &NackError{core.Nack{}}
			}
			return nil
		})
		joinGroup(t, site.client(t, nil), SubscribeOptions{}, r.handle)
		time.Sleep(time.Second)
		site.sendKeyed(t, "", "busy")
		for _, payload := range []string{"failing", "twin", "between", "twin", "last"} {
			site.sendKeyed(t, "k", payload) // all at one time
		}
		time.Sleep(time.Minute)
		if got, want := r.handled(), []string{"busy/1", "failing/1", "failing/2", "twin/1", "between/1", "twin/1", "last/1"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
	})
}

// TestAFailureThatAnotherHasDealtWith: what failed has gone to another member, and comes no more; what follows is handled, and nothing goes back in vain.
func TestAFailureThatAnotherHasDealtWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		r := newRecorder(func(payload string, _ uint32) error {
			switch payload {
			case "failing":
				return &NackError{core.Nack{}}
			case "busy":
				time.Sleep(10 * time.Second)
			}
			return nil
		})
		joinGroup(t, site.client(t, nil), SubscribeOptions{MaxInFlight: 1}, r.handle)
		time.Sleep(time.Second)
		site.sendKeyed(t, "k", "failing")
		site.sendKeyed(t, "", "busy")
		time.Sleep(100 * time.Millisecond)
		other, err := site.broker.Join(core.JoinOptions{Patterns: []string{"**"}, Group: "g"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		var d core.Delivery
		if !other.Take(&d, 1<<20) {
			t.Fatal("the failed message did not come")
		}
		other.Settle(&d, true)
		other.Ack(core.SequenceRange{First: 1, Last: 1})
		other.Leave()
		for i := range 5 {
			site.sendKeyed(t, "k", fmt.Sprint(i))
		}
		time.Sleep(time.Minute)
		if got, want := r.handled(), []string{"failing/1", "busy/1", "0/1", "1/1", "2/1", "3/1", "4/1"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
		if st := groupBooks(t, site.broker, "g"); st.Delivered != 8 {
			t.Errorf("%d deliveries, want 8", st.Delivered)
		}
	})
}

// TestFailedKeys: what the broker has sent before it heard of a failure goes back, and nothing else.
func TestFailedKeys(t *testing.T) {
	const most = 4
	var f failedKeys
	waits := func(heard uint64, key string) bool {
		return f.waits(&Delivery{Message: core.Message{Key: key}, heard: heard})
	}
	back := func(n uint64) []core.SequenceRange {
		return []core.SequenceRange{{First: 1, Last: 2}, {First: n, Last: n}}
	}
	buffer := []byte("k")
	f.failed(unsafe.String(&buffer[0], 1), 7, 10)
	buffer[0] = 'x' // the next frame
	if waits(0, "other") || !waits(0, "k") || !waits(1000, "k") {
		t.Error("before the broker is told, everything of the key waits, and nothing else")
	}
	f.tell(back(8), 20, 100)
	if !waits(1000, "k") {
		t.Error("of others it was told, not of this one")
	}
	f.tell(back(7), 21, 100)
	f.tell(back(7), 22, 100)
	if !waits(20, "k") || !waits(0, "k") {
		t.Error("it had not heard yet")
	}
	if waits(21, "k") || waits(0, "k") || len(f.byKey) != 0 {
		t.Error("it had heard, so it will not forget")
	}
	for n := range uint64(1000) {
		f.failed(fmt.Sprint(n), n, n)
		f.tell(back(n), n+1, n+2*most)
	}
	if len(f.byKey) > 2*most+2 {
		t.Errorf("%d keys are kept", len(f.byKey))
	}
}
