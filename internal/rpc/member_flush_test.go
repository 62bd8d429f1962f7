package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestNothingIsAcknowledgedBeforeItIsFlushed: what was handled counts when Flush has returned, and as Flush says.
func TestNothingIsAcknowledgedBeforeItIsFlushed(t *testing.T) {
	full := errors.New("no space left on device")
	for _, test := range []struct {
		name    string
		handle  func(payload string, cancel func()) error // nil: all is well
		flush   error
		result  error
		handled []string
		acked   uint64
		rest    []string // what another member gets then
	}{
		{
			name: "all is well", handled: numberedFrom(0, 10), acked: 10, result: context.Canceled,
		},
		{
			name: "it cannot be flushed", flush: full, result: full,
			handled: numberedFrom(0, 10), rest: []string{"0/2", "1/2", "2/2", "3/2", "4/2", "5/2", "6/2", "7/2", "8/2", "9/2"},
		},
		{
			name: "it cannot be flushed, which is not the messages' fault", flush: errors.Join(&NackError{core.Nack{Action: core.NackRelease}}, ErrStop),
			handled: numberedFrom(0, 10), rest: numberedFrom(0, 10),
		},
		{
			name: "enough", handle: at("3", func() error { return ErrStop }),
			handled: numberedFrom(0, 4), acked: 4, rest: numberedFrom(4, 6),
		},
		{
			name: "enough, but it cannot be flushed", handle: at("3", func() error { return ErrStop }), flush: full, result: full,
			handled: numberedFrom(0, 4), rest: append([]string{"0/2", "1/2", "2/2", "3/2"}, numberedFrom(4, 6)...),
		},
		{
			name: "it leaves", handle: func(payload string, cancel func()) error {
				if payload == "3" {
					cancel()
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			},
			handled: numberedFrom(0, 4), acked: 4, result: context.Canceled, rest: numberedFrom(4, 6),
		},
		{
			name: "one is given back", handle: at("3", func() error { return &NackError{core.Nack{Action: core.NackReject}} }),
			handled: numberedFrom(0, 10), acked: 9, result: context.Canceled,
		},
		{
			name: "one fails", handle: at("3", func() error { return full }), result: full,
			handled: numberedFrom(0, 4), acked: 3, rest: append([]string{"3/2"}, numberedFrom(4, 6)...),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				joined := make(chan *groupMember, 1)
				cancel := func() { (<-joined).cancel() }
				handled := 0
				r := newRecorder(func(payload string, _ uint32) error {
					handled++
					if test.handle == nil {
						return nil
					}
					return test.handle(payload, cancel)
				})
				flushes := 0
				flush := func() error {
					flushes++
					time.Sleep(100 * time.Millisecond)
					if st := groupBooks(t, site.broker, "g"); st.Acked > 0 || handled == 0 {
						t.Errorf("flushed after %d: %d are acknowledged", handled, st.Acked)
					}
					return test.flush
				}
				// The messages are to come in one frame: the member is there before them, and a group shares out what it has.
				site.sendRunTo(t, "g", 10)
				m := joinGroup(t, site.client(t, nil), SubscribeOptions{Flush: flush}, r.handle)
				joined <- m
				time.Sleep(time.Second)
				if len(m.result) == 0 {
					m.cancel()
				}
				if err := m.end(t); !errors.Is(err, test.result) {
					t.Errorf("Subscribe returned %v, want %v", err, test.result)
				}
				wantSeen(t, r, test.handled...)
				if flushes != 1 {
					t.Errorf("flushed %d times", flushes)
				}
				if st := groupBooks(t, site.broker, "g"); st.Acked != test.acked || st.InFlight != 0 {
					t.Errorf("%d acknowledged, %d in flight; want %d, 0", st.Acked, st.InFlight, test.acked)
				}
				rest := newRecorder(nil)
				joinGroup(t, site.client(t, nil), SubscribeOptions{}, rest.handle)
				synctest.Wait()
				if got := rest.seen(); !slices.Equal(got, test.rest) {
					t.Errorf("the rest is %v, want %v", got, test.rest)
				}
			})
		})
	}
}

// at returns a handler's function that fails for one payload.
func at(payload string, result func() error) func(string, func()) error {
	return func(p string, _ func()) error {
		if p == payload {
			return result()
		}
		return nil
	}
}

// sendRunTo makes a group without members in which n messages wait.
func (s *testSite) sendRunTo(t *testing.T, group string, n int) {
	t.Helper()
	m := joinGroup(t, s.client(t, nil), SubscribeOptions{Group: group}, nil)
	m.cancel()
	m.end(t)
	s.sendNumbered(t, 0, n)
}

// TestBroadcastFlush: a broadcast subscription flushes once a frame.
func TestBroadcastFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		full := errors.New("no space left on device")
		var log []string
		result := make(chan error, 1)
		go func() {
			result <- site.client(t, nil).Subscribe(t.Context(), SubscribeOptions{
				Patterns: []string{"t"},
				Flush: func() error {
					log = append(log, "flush")
					if len(log) > 8 {
						return full
					}
					return nil
				},
			}, func(d *Delivery) error {
				log = append(log, string(d.Payload))
				return nil
			})
		}()
		synctest.Wait()
		for _, payloads := range [][]string{{"0", "1", "2"}, {"3"}, {"4", "5", "6"}} {
			var data []byte
			for _, p := range payloads {
				data = Encoding{}.Append(data, &core.Message{Topic: "t", Payload: []byte(p)})
			}
			runs := []core.Run{{Topic: []byte("t"), End: len(data), Count: len(payloads)}}
			if err := site.broker.Publish(t.Context(), &core.Batch{Data: data, Runs: runs}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := <-result; !errors.Is(err, full) {
			t.Errorf("Subscribe returned %v", err)
		}
		if got := fmt.Sprint(log); got != "[0 1 2 flush 3 flush 4 5 6 flush]" {
			t.Error(got)
		}
	})
}

func TestFlushIsNotForParallelHandlers(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	err := c.Subscribe(t.Context(), SubscribeOptions{Patterns: []string{"a"}, Parallel: 2, Flush: func() error { return nil }}, nil)
	if !errors.Is(err, core.ErrProtocol) {
		t.Errorf("got %v", err)
	}
}
