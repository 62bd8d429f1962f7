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
		var got []string
		for len(r.list) > 0 {
			h := <-r.list
			got = append(got, fmt.Sprintf("%s/%d", h.payload, h.attempt))
		}
		if want := []string{"failing/1", "failing/2", "second/1", "crashed/2", "last/1"}; !slices.Equal(got, want) {
			t.Errorf("handled %v, want %v", got, want)
		}
	})
}

// TestFailedKeys: when the broker has heard of a failure, so that what it sends is to be handled.
func TestFailedKeys(t *testing.T) {
	const most = 4
	var f failedKeys
	delivery := func(n uint64, key, payload string, attempt uint32) *Delivery {
		return &Delivery{Message: core.Message{Topic: "t", Key: key, Payload: []byte(payload)}, Sequence: n, Attempt: attempt}
	}
	waits := func(n uint64, key, payload string, attempt uint32) bool {
		return f.waits(delivery(n, key, payload, attempt))
	}
	fails := func(received uint64) {
		f = failedKeys{}
		buffer := []byte("k")
		f.failed(delivery(1, unsafe.String(&buffer[0], 1), "failed", 1), received, most)
		buffer[0] = 'x' // the next frame
	}

	fails(10)
	if waits(11, "other", "a", 1) || !waits(11, "k", "a", 1) || !waits(1000, "k", "b", 1) {
		t.Error("before the broker is told, everything of the key waits, and nothing else")
	}

	fails(10)
	f.tell(12, 14, most)
	f.tell(100, 104, most)
	if waits(17, "k", "a", 1) || len(f.byKey) != 0 {
		t.Error("when it sent 17 it had heard of the failure: it knew of more than 12")
	}

	fails(10)
	f.tell(12, 14, most)
	if !waits(16, "k", "a", 1) || !waits(17, "k", "b", 1) {
		t.Error("when it sent 16 it may not have heard, and 17 must not be handled before it")
	}
	f.tell(14, 17, most)
	if waits(18, "k", "a", 1) || waits(19, "k", "b", 1) {
		t.Error("16 has come again, and what was behind it follows")
	}

	fails(10)
	f.tell(12, 13, most)
	if !waits(13, "k", "a", 1) {
		t.Error("13 was there before the broker was told")
	}
	f.tell(13, 14, most)
	if waits(15, "k", "failed", 2) || waits(16, "k", "a", 1) {
		t.Error("the one that failed has come again")
	}

	fails(10)
	f.tell(12, 12, most)
	if !waits(13, "k", "a", 2) {
		t.Error("a higher attempt does not make it the one that failed")
	}
	f.tell(13, 13, most)
	if !waits(14, "k", "failed", 1) {
		t.Error("nor does the same content")
	}
	f.tell(14, 14, most)
	if waits(15, "k", "failed", 2) {
		t.Error("both do")
	}

	fails(10)
	f.tell(12, 16, most)
	if !waits(13, "k", "twin", 1) || !waits(14, "k", "twin", 1) {
		t.Error("what had come when the broker was told is no message that comes again, but its twin")
	}
	f.tell(14, 16, most)
	if waits(17, "k", "twin", 1) {
		t.Error("it has come again")
	}

	f = failedKeys{}
	for n := range uint64(1000) {
		f.failed(delivery(1, fmt.Sprint(n), "failed", 1), 3*n, most)
		f.tell(3*n, 3*n, most)
	}
	if len(f.byKey) > 5 {
		t.Errorf("%d keys are kept", len(f.byKey))
	}
}
