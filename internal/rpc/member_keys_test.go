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

// TestFailedKeys: which deliveries have to go back is a matter of their numbers alone.
func TestFailedKeys(t *testing.T) {
	var f failedKeys
	const most = 4
	f.failed("k", 1, 10, most)
	if f.waits(11, "other", 1) || !f.waits(11, "k", 1) || !f.waits(1000, "k", 1) {
		t.Error("before the broker is told, everything of the key waits, and nothing else")
	}
	f.tell(12, most)
	f.tell(100, most)
	if !f.waits(16, "k", 1) {
		t.Error("the broker may have sent 16 when it knew of 12")
	}
	if f.waits(17, "k", 1) || len(f.byKey) != 0 {
		t.Error("it had heard of the failure when it sent 17")
	}
	buffer := []byte("k")
	f.failed(unsafe.String(&buffer[0], 1), 2, 20, most)
	buffer[0] = 'x' // the next frame
	f.tell(20, most)
	if !f.waits(21, "k", 1) {
		t.Error("its name was not kept")
	}
	if f.waits(21, "k", 3) || f.waits(22, "k", 1) {
		t.Error("it has come again, and the others follow it")
	}
	for n := range uint64(1000) {
		f.failed(fmt.Sprint(n), 1, 3*n, most)
		f.tell(3*n, most)
	}
	if len(f.byKey) > 5 {
		t.Errorf("%d keys are kept", len(f.byKey))
	}
}
