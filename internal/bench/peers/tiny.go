package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// tinySide is a broker and what is connected to it.
type tinySide struct {
	*server
	ctx     context.Context
	clients []*rpc.Client
	cancel  context.CancelFunc // ends the subscriptions
	readers sync.WaitGroup

	mu  sync.Mutex
	err error // of a subscription
}

func (s *settings) newTiny(ctx context.Context) (*tinySide, error) {
	srv, err := s.startTiny(ctx)
	if err != nil {
		return nil, err
	}
	t := &tinySide{server: srv}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t, nil
}

// close ends everything and returns what went wrong with a subscription.
func (t *tinySide) close() error {
	t.cancel()
	t.readers.Wait()
	for _, c := range t.clients {
		c.Close()
	}
	t.stop()
	return t.err
}

func (t *tinySide) dial() (*rpc.Client, error) {
	c, err := rpc.Dial(t.ctx, rpc.ClientOptions{Target: t.address})
	if err == nil {
		t.clients = append(t.clients, c)
	}
	return c, err
}

// subscribe returns when the subscription is registered.
func (t *tinySide) subscribe(c *rpc.Client, o rpc.SubscribeOptions, handle func(*rpc.Delivery) error) error {
	opened := make(chan struct{})
	ended := make(chan error, 1)
	o.NoResubscribe = true
	tell := sync.OnceFunc(func() { close(opened) })
	o.OnOpened = func(rpc.Opened) { tell() }
	t.readers.Go(func() {
		err := c.Subscribe(t.ctx, o, handle)
		if !errors.Is(err, context.Canceled) {
			t.mu.Lock()
			t.err = fmt.Errorf("subscription: %w", err)
			t.mu.Unlock()
			t.cancel()
		}
		ended <- err
	})
	select {
	case <-opened:
		return nil
	case err := <-ended:
		return err
	}
}

func tinyFlow(ctx context.Context, s *settings, l load) (rate float64, err error) {
	t, err := s.newTiny(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	pattern := topicRoot
	if l.topics > 1 {
		pattern = "**"
	}
	tallies := make([]*tally, l.subs)
	for i := range tallies {
		tallies[i] = newTally(l.size, uint64(l.pubs*l.messages))
		c, err := t.dial()
		if err != nil {
			return 0, err
		}
		count := tallies[i]
		err = t.subscribe(c, rpc.SubscribeOptions{Patterns: []string{pattern}}, func(d *rpc.Delivery) error {
			count.note(d.Topic, d.Payload)
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	start, err := t.publish(l, tinyUnconfirmed)
	if err != nil {
		return 0, err
	}
	for _, count := range tallies {
		if err := await(t.ctx, count.done); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	for _, count := range tallies {
		err = errors.Join(err, count.check(uint64(l.pubs), uint64(l.messages)))
	}
	return float64(l.pubs*l.messages*l.subs) / took.Seconds(), err
}

// tinyUnconfirmed is how many messages a publisher has unconfirmed beside NATS core, which confirms none and has no limit.
const tinyUnconfirmed = 1 << 16

// publish has all publishers of a load publish, and returns when they began, once everything is confirmed.
func (t *tinySide) publish(l load, unconfirmed int) (start time.Time, err error) {
	publishers := make([]*rpc.Publisher, l.pubs)
	o := rpc.PublisherOptions{MaxWait: 30 * time.Second, MaxInFlight: unconfirmed}
	for i := range publishers {
		c, err := t.dial()
		if err != nil {
			return start, err
		}
		if publishers[i], err = c.Publisher(t.ctx, o); err != nil {
			return start, err
		}
	}
	topics := topicsOf(l)
	start = time.Now()
	errs := make([]error, l.pubs)
	var publishing sync.WaitGroup
	for i, p := range publishers {
		publishing.Go(func() {
			m := core.Message{Payload: make([]byte, l.size)}
			for n := range l.messages {
				putStamp(m.Payload, uint64(n), 0)
				m.Topic = topics[n%len(topics)]
				if _, err := p.Publish(t.ctx, &m); err != nil {
					errs[i] = err
					return
				}
			}
			errs[i] = p.Close(t.ctx)
		})
	}
	publishing.Wait()
	return start, errors.Join(errs...)
}

// What members of a group have in flight, each.
const tinyInFlight = 1024

func tinyGroup(ctx context.Context, s *settings, l load) (float64, error) {
	return tinyShares(ctx, s, l, core.AckNone)
}

func tinyAcks(ctx context.Context, s *settings, l load) (float64, error) {
	return tinyShares(ctx, s, l, core.AckExplicit)
}

func tinyShares(ctx context.Context, s *settings, l load, ack core.AckMode) (rate float64, err error) {
	t, err := s.newTiny(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	shares := newShares(l.subs, l.size, uint64(l.messages))
	for i := range l.subs {
		c, err := t.dial()
		if err != nil {
			return 0, err
		}
		o := rpc.SubscribeOptions{Patterns: []string{topicRoot}, Group: "bench", Ack: ack, MaxInFlight: tinyInFlight}
		err = t.subscribe(c, o, func(d *rpc.Delivery) error {
			shares.note(i, d.Topic, d.Payload)
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	unconfirmed := tinyUnconfirmed
	if ack == core.AckExplicit {
		unconfirmed = jetStreamPending
	}
	start, err := t.publish(l, unconfirmed)
	if err != nil {
		return 0, err
	}
	if err := await(t.ctx, shares.done); err != nil {
		return 0, err
	}
	if ack == core.AckExplicit {
		if err := t.awaitAcks(); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	return float64(l.messages) / took.Seconds(), shares.check(uint64(l.messages))
}

// awaitAcks returns when the broker holds nothing of the group any more.
func (t *tinySide) awaitAcks() error {
	for {
		snapshot, err := t.clients[0].Observe(t.ctx, core.Query{View: core.ViewGroups})
		if err != nil {
			return err
		}
		if g := snapshot.Groups; len(g) == 1 && g[0].Pending == 0 && g[0].InFlight == 0 {
			return nil
		}
	}
}

const (
	roundTrips    = 20_000
	roundTripSize = 128
	fanSubs       = 100
	fanRate       = 1000
	fanMessages   = 5000
)

func tinyRoundTrip(ctx context.Context, s *settings) (values []float64, err error) {
	t, err := s.newTiny(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	reader, err := t.dial()
	if err != nil {
		return nil, err
	}
	back := make(chan struct{}, 1)
	err = t.subscribe(reader, rpc.SubscribeOptions{Patterns: []string{topicRoot}}, func(*rpc.Delivery) error {
		back <- struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	writer, err := t.dial()
	if err != nil {
		return nil, err
	}
	p, err := writer.Publisher(t.ctx, rpc.PublisherOptions{})
	if err != nil {
		return nil, err
	}
	m := core.Message{Topic: topicRoot, Payload: make([]byte, roundTripSize)}
	return roundTrip(t.ctx, s, back, func() error {
		_, err := p.Publish(t.ctx, &m)
		return err
	})
}

// roundTrip publishes one message after the other and waits for each.
func roundTrip(ctx context.Context, s *settings, back <-chan struct{}, publish func() error) ([]float64, error) {
	n := int(roundTrips * s.scale)
	latency := make([]int64, 0, n)
	for i := range n + n/10 {
		began := now()
		if err := publish(); err != nil {
			return nil, err
		}
		select {
		case <-back:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if i >= n/10 { // the first ones warm up
			latency = append(latency, now()-began)
		}
	}
	return quantiles(latency, 0.5, 0.99), nil
}

func tinyFan(ctx context.Context, s *settings) (values []float64, err error) {
	t, err := s.newTiny(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	n := int(fanMessages * s.scale)
	tallies := make([]*tally, fanSubs)
	for i := range tallies {
		c, err := t.dial()
		if err != nil {
			return nil, err
		}
		count := newTally(roundTripSize, uint64(n))
		count.timed, tallies[i] = true, count
		err = t.subscribe(c, rpc.SubscribeOptions{Patterns: []string{topicRoot}}, func(d *rpc.Delivery) error {
			count.note(d.Topic, d.Payload)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	c, err := t.dial()
	if err != nil {
		return nil, err
	}
	p, err := c.Publisher(t.ctx, rpc.PublisherOptions{})
	if err != nil {
		return nil, err
	}
	m := core.Message{Topic: topicRoot, Payload: make([]byte, roundTripSize)}
	err = pace(t.ctx, n, fanRate, func(i int, at int64) error {
		putStamp(m.Payload, uint64(i), at)
		_, err := p.Publish(t.ctx, &m)
		return err
	})
	if err != nil {
		return nil, err
	}
	return fanLatency(t.ctx, tallies, n)
}

// fanLatency waits for everything and returns p50 and p99 of all subscribers together. The first tenth warms up.
func fanLatency(ctx context.Context, tallies []*tally, n int) ([]float64, error) {
	var all []int64
	for _, count := range tallies {
		if err := await(ctx, count.done); err != nil {
			return nil, err
		}
		if err := count.check(1, uint64(n)); err != nil {
			return nil, err
		}
		all = append(all, count.latency[n/10:]...)
	}
	return quantiles(all, 0.5, 0.99), nil
}
