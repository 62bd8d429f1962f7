package rpc

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestAFailedMessageKeepsItsPlaceAmongItsKey: what came with it has to wait for its next attempt, or for its end.
func TestAFailedMessageKeepsItsPlaceAmongItsKey(t *testing.T) {
	longer := 5 * time.Second
	for _, test := range []struct {
		name    string
		nack    core.Nack
		limit   int // max_attempts
		ofKey   []string
		delayed time.Duration // at least, between the two attempts
	}{
		{"backoff", core.Nack{}, 5, []string{"0/1", "1/1", "1/2", "2/1", "3/1", "4/1", "5/1", "6/1"}, 750 * time.Millisecond},
		{"a pause of its own", core.Nack{Delay: &longer}, 5, []string{"0/1", "1/1", "1/2", "2/1", "3/1", "4/1", "5/1", "6/1"}, longer},
		{"no more attempts", core.Nack{}, 1, []string{"0/1", "1/1", "2/1", "3/1", "4/1", "5/1", "6/1"}, 0},
		{"rejected", core.Nack{Action: core.NackReject}, 5, []string{"0/1", "1/1", "2/1", "3/1", "4/1", "5/1", "6/1"}, 0},
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
							if h.at > 50*time.Millisecond {
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

func TestFailedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f failedKeys
		f.failed("", &core.Nack{})
		f.failed("released", &core.Nack{Action: core.NackRelease})
		f.failed("at once", &core.Nack{Delay: new(time.Duration(0))})
		f.failed("soon", &core.Nack{Delay: new(time.Second)})
		f.failed("later", &core.Nack{Delay: new(time.Minute)})
		for key, want := range map[string]bool{"": false, "released": false, "at once": false, "soon": true, "later": true, "never": false} {
			if got := f.waits(key); got != want {
				t.Errorf("%q waits: %v, want %v", key, got, want)
			}
		}
		time.Sleep(time.Second)
		if f.waits("soon") || !f.waits("later") {
			t.Error("a second later they wait as before")
		}
		f.failed("another", &core.Nack{})
		if len(f.until) != 2 {
			t.Errorf("%d keys are kept", len(f.until))
		}
	})
}
