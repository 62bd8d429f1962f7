package rpc

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestALongJobIsNotRedelivered: as long as its handler works, a delivery stays, and so does what waits behind it.
func TestALongJobIsNotRedelivered(t *testing.T) {
	for _, test := range []struct {
		name     string
		parallel int
	}{{"one after the other", 0}, {"in parallel", 2}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				r := newRecorder(func(string, uint32) error {
					time.Sleep(25 * time.Minute)
					return nil
				})
				o := SubscribeOptions{Parallel: test.parallel, MaxInFlight: 4}
				joinGroup(t, site.client(t, nil), o, r.handle)
				site.sendNumbered(t, 0, 4)
				synctest.Wait()
				other := newRecorder(nil)
				joinGroup(t, site.client(t, nil), SubscribeOptions{}, other.handle)
				time.Sleep(101 * time.Minute)
				seen := r.seen()
				slices.Sort(seen) // two begin in the same instant
				if want := numberedFrom(0, 4); !slices.Equal(seen, want) {
					t.Errorf("handled %v, want %v", seen, want)
				}
				wantSeen(t, other)
				if st := site.wantBooks(t, 4, 0, 0); st.Expired != 0 || st.Redelivered != 0 || st.Ineffective != 0 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// TestManyShortJobsAreNotRedelivered: none of them takes long, but those at the end have waited for more than the deadline.
func TestManyShortJobsAreNotRedelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, func(o *core.Options) { o.AckDeadline = 3 * time.Second })
		r := newRecorder(func(string, uint32) error {
			time.Sleep(500 * time.Millisecond)
			return nil
		})
		joinGroup(t, site.client(t, nil), SubscribeOptions{}, r.handle)
		site.sendNumbered(t, 0, 64)
		time.Sleep(33 * time.Second)
		wantSeen(t, r, numberedFrom(0, 64)...)
		if st := site.wantBooks(t, 64, 0, 0); st.Expired != 0 {
			t.Errorf("%d deliveries were not acknowledged in time", st.Expired)
		}
	})
}

// TestNoExtension: on request the deadline is what it is without a client that extends it.
func TestNoExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, func(o *core.Options) { o.AckDeadline = 3 * time.Second })
		m := joinGroup(t, site.client(t, nil), SubscribeOptions{MaxExtension: -1}, func(*Delivery) error {
			time.Sleep(5 * time.Second)
			return nil
		})
		site.send(t, "1")
		synctest.Wait()
		other := newRecorder(nil)
		joinGroup(t, site.client(t, nil), SubscribeOptions{MaxInFlight: 1}, other.handle)
		m.cancel()
		time.Sleep(2900 * time.Millisecond)
		wantSeen(t, other)
		time.Sleep(200 * time.Millisecond)
		wantSeen(t, other, "1/2")
		if err := m.end(t); !errors.Is(err, context.Canceled) {
			t.Errorf("Subscribe returned %v", err)
		}
		if st := site.wantBooks(t, 1, 0, 0); st.Expired != 1 {
			t.Errorf("%d deliveries were not acknowledged in time", st.Expired)
		}
	})
}

// TestAHungHandler loses its delivery, and its member takes no part in the group until the handler has returned.
func TestAHungHandler(t *testing.T) {
	for _, test := range []struct {
		name     string
		parallel int
		handlers int // that hang
	}{{"one after the other", 0, 1}, {"all of two", 2, 2}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, func(o *core.Options) { o.AckDeadline = 9 * time.Second })
				var hang atomic.Bool
				hang.Store(true)
				r := newRecorder(func(string, uint32) error {
					if hang.Load() {
						time.Sleep(time.Hour)
					}
					return nil
				})
				m := joinGroup(t, site.client(t, nil), SubscribeOptions{Parallel: test.parallel, MaxExtension: time.Minute}, r.handle)
				<-m.opened
				site.sendNumbered(t, 0, 6)
				synctest.Wait()
				if n := len(r.seen()); n != test.handlers {
					t.Errorf("%d handled, want %d", n, test.handlers)
				}
				hang.Store(false)
				other := newRecorder(nil)
				second := joinGroup(t, site.client(t, nil), SubscribeOptions{}, other.handle)
				time.Sleep(time.Minute)
				wantSeen(t, other)
				time.Sleep(3*time.Second + time.Millisecond)
				want := []string{"0/2"}
				for i := 1; i < 6; i++ {
					attempt := "/1"
					if i < test.handlers {
						attempt = "/2"
					}
					want = append(want, string(rune('0'+i))+attempt)
				}
				wantSeen(t, other, want...)
				site.wantBooks(t, 6, 0, 0)
				site.sendNumbered(t, 10, 50)
				time.Sleep(50 * time.Minute)
				wantSeen(t, r)
				wantSeen(t, other, numberedFrom(10, 50)...)
				// The handler returns, long after the message was done elsewhere.
				time.Sleep(10 * time.Minute)
				if len(m.opened) != 1 {
					t.Fatalf("opened %d times", 1+len(m.opened))
				}
				st := site.wantBooks(t, 56, 0, 0)
				if st.Members != 2 || st.Expired != 0 {
					t.Errorf("%+v", st)
				}
				second.cancel()
				synctest.Wait()
				site.sendNumbered(t, 100, 2)
				synctest.Wait()
				if n := len(r.seen()); n != 2 {
					t.Errorf("%d handled after the return", n)
				}
				site.wantBooks(t, 58, 0, 0)
			})
		})
	}
}

// TestAHungHandlerBesideOthers: the others finish what they have, and go on with the handlers that are left.
func TestAHungHandlerBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, func(o *core.Options) { o.AckDeadline = 9 * time.Second })
		r := newRecorder(func(payload string, attempt uint32) error {
			switch {
			case payload == "hangs" && attempt == 1:
				time.Sleep(time.Hour)
			case payload == "long":
				time.Sleep(5 * time.Minute)
			}
			return nil
		})
		m := joinGroup(t, site.client(t, nil), SubscribeOptions{Parallel: 2, MaxExtension: 6 * time.Minute}, r.handle)
		<-m.opened
		site.send(t, "hangs")
		time.Sleep(4 * time.Minute)
		site.send(t, "long", "behind")
		time.Sleep(3 * time.Minute)
		// It is the only member, and has left.
		wantSeen(t, r, "hangs/1", "long/1")
		site.wantBooks(t, 0, 2, 1)
		time.Sleep(3 * time.Minute)
		wantSeen(t, r, "hangs/2", "behind/1")
		if st := site.wantBooks(t, 3, 0, 0); st.Expired != 0 {
			t.Errorf("%d deliveries were not acknowledged in time", st.Expired)
		}
		m.cancel()
		time.Sleep(51 * time.Minute)
		if err := m.end(t); !errors.Is(err, context.Canceled) {
			t.Errorf("Subscribe returned %v", err)
		}
	})
}
