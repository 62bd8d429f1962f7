package rpc

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestDropPolicies: a frozen subscriber is not evicted; reading on, it learns of every gap.
func TestDropPolicies(t *testing.T) {
	for _, policy := range []tinybrokerv1.OverflowPolicy{
		tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST, tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_NEWEST,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			station := newStation(t, nil)
			stub := station.stub(t)
			sub := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{
				TopicPatterns: []string{"d"}, Capacity: 20, Overflow: policy,
			})
			const n = 200
			for i := range uint64(n) {
				publishOne(t, stub, "d", numbered(i, 16<<10))
			}
			eventually(t, "the queue is full", func() bool { return station.broker.Stats().QueuedMessages == 20 })
			dropped := station.broker.Stats().Dropped
			if dropped < n/2 {
				t.Errorf("%d messages dropped", dropped)
			}
			next, told := uint64(0), uint64(0)
			read := func(end uint64) {
				for next < end {
					r := sub.frame(t)
					next += r.GetDroppedBefore()
					told += r.GetDroppedBefore()
					for _, m := range r.GetMessages() {
						if got := numberOf(t, m.GetPayload()); got != next {
							t.Fatalf("message %d came, want %d", got, next)
						}
						next++
					}
				}
			}
			read(n - dropped*uint64(policy-tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST))
			for i := range uint64(3) { // the newest that were dropped are told with the next message
				publishOne(t, stub, "d", numbered(n+i, 0))
			}
			read(n + 3)
			if st := station.broker.Stats(); told != dropped || st.Dropped != dropped || st.Evictions != 0 || st.Delivered != n+3-dropped {
				t.Errorf("told of %d dropped messages, counted %d, then %+v", told, dropped, st)
			}
		})
	}
}

// TestTheLastDropsAreTold: nothing comes after them, so the end tells them; as the last frame, and in the trailers.
func TestTheLastDropsAreTold(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{
		TopicPatterns: []string{"d"}, Capacity: 20, Overflow: tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_NEWEST,
	})
	const n = 200
	for i := range uint64(n) {
		publishOne(t, stub, "d", numbered(i, 16<<10))
	}
	dropped := station.broker.Stats().Dropped
	ended := make(chan error, 1)
	go func() { ended <- station.server.Shutdown(within(t, 10*time.Second)) }()
	read, told := uint64(0), uint64(0)
	var closed *tinybrokerv1.Closed
	for closed == nil {
		r, err := sub.Recv()
		if err != nil {
			t.Fatal(err)
		}
		read += uint64(len(r.GetMessages()))
		told += r.GetDroppedBefore()
		closed = r.GetClosed()
	}
	if told += closed.GetDropped(); dropped == 0 || told != dropped || read+dropped != n || closed.GetLost() != 0 || closed.GetLastSequence() != read {
		t.Errorf("%d messages came, %d were dropped, told of %d: %v", read, dropped, told, closed)
	}
	if _, err := sub.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("then: %v", err)
	}
	if got := sub.Trailer().Get(closeDroppedTrailer); !slices.Equal(got, []string{strconv.FormatUint(closed.GetDropped(), 10)}) {
		t.Errorf("trailer %q, closed: %v", got, closed)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// handClock is a clock that is set by hand.
type handClock struct {
	core.SystemClock
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// TestLagging: a queue past three quarters is told, at most once a second, and tells how full it is.
func TestLagging(t *testing.T) {
	clock := &handClock{now: time.Unix(1e9, 0)}
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.Clock = clock })
	stub := station.stub(t)
	sub := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"l"}, Capacity: 40})
	published, read := uint64(0), uint64(0)
	round := func() (warnings []*tinybrokerv1.Lagging) {
		for station.broker.Stats().QueuedMessages < 36 {
			publishOne(t, stub, "l", numbered(published, 16<<10))
			published++
		}
		for read < published {
			r := sub.frame(t)
			read += uint64(len(r.GetMessages()))
			if l := r.GetLagging(); l != nil {
				warnings = append(warnings, l)
			}
		}
		return warnings
	}
	for i, step := range []struct {
		advance time.Duration
		want    int
	}{{0, 1}, {0, 0}, {999 * time.Millisecond, 0}, {time.Millisecond, 1}, {time.Second, 1}} {
		clock.advance(step.advance)
		warnings := round()
		if len(warnings) != step.want {
			t.Fatalf("round %d: %d warnings, want %d", i, len(warnings), step.want)
		}
		for _, l := range warnings {
			if l.GetQueued() <= 30 || l.GetQueued() > 40 || l.GetCapacity() != 40 || l.GetQueuedBytes() < l.GetQueued()*16<<10 {
				t.Errorf("round %d: %v", i, l)
			}
		}
	}
	if n := station.broker.Stats().Evictions; n != 0 {
		t.Errorf("%d evictions", n)
	}
}

// TestEvictAndReturn: a subscriber that is evicted again and again and comes back under its name leaves nothing behind.
func TestEvictAndReturn(t *testing.T) {
	station := newStation(t, func(o *core.Options, so *ServerOptions) { o.SendTimeout = 10 * time.Millisecond })
	stub := station.stub(t)
	client := station.stub(t, frozenOptions()...)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		sub, err := tryOpen(ctx, client, &tinybrokerv1.OpenSubscription{SubscriptionId: "again", TopicPatterns: []string{"f"}, Capacity: 20})
		if err != nil {
			t.Fatal(err)
		}
		if previous := sub.opened.GetPrevious(); (previous == nil) != (i == 0) {
			t.Fatalf("round %d: previous %v", i, previous)
		}
		fill(t, station, stub, "f")
		cancel()
	}
	eventually(t, "nothing is left", func() bool {
		st := station.broker.Stats()
		return st.Memory == 0 && st.Subscriptions == 0 && st.Evictions == 20
	})
	eventually(t, "each eviction is logged once", func() bool { return len(station.log.with(t, "subscription ended")) >= 20 })
	lost := uint64(0)
	lines := station.log.with(t, "subscription ended")
	for _, line := range lines {
		n, _ := line["lost"].(float64)
		lost += uint64(n)
	}
	if st := station.broker.Stats(); len(lines) != 20 || lost != st.Lost || st.Published != st.Delivered+st.Lost {
		t.Errorf("%d lines that tell of %d lost messages; %+v", len(lines), lost, st)
	}
}
