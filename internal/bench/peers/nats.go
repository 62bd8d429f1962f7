package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// natsSide is a nats-server and what is connected to it.
type natsSide struct {
	*server
	conns []*nats.Conn
}

func (s *settings) newNATS(ctx context.Context, jetStream bool) (*natsSide, error) {
	srv, err := s.startNATS(ctx, jetStream)
	if err != nil {
		return nil, err
	}
	return &natsSide{server: srv}, nil
}

func (n *natsSide) close() {
	for _, c := range n.conns {
		c.Close()
	}
	n.stop()
}

// dial connects with the client's default settings, which its documentation recommends, except that a lost connection is the
// end: it would hide losses.
func (n *natsSide) dial() (*nats.Conn, error) {
	c, err := nats.Connect("nats://"+n.address, nats.NoReconnect())
	if err == nil {
		n.conns = append(n.conns, c)
	}
	return c, err
}

// subscribe hands messages to note by an asynchronous callback, the fastest way to receive. queue may be empty. Nothing is
// dropped in the client, however far note is behind.
func (n *natsSide) subscribe(subject, queue string, note func(*nats.Msg)) error {
	c, err := n.dial()
	if err != nil {
		return err
	}
	sub, err := c.QueueSubscribe(subject, queue, note)
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	return c.Flush() // the server knows of it
}

// failed reports why messages are missing, if a connection knows.
func (n *natsSide) failed() (err error) {
	for _, c := range n.conns {
		err = errors.Join(err, c.LastError())
	}
	return err
}

// natsFlow is for broadcast and for queue groups.
func natsFlow(ctx context.Context, s *settings, l load) (float64, error) {
	n, err := s.newNATS(ctx, false)
	if err != nil {
		return 0, err
	}
	defer n.close()
	subject := topicRoot
	if l.topics > 1 {
		subject = ">"
	}
	tallies := make([]*tally, l.subs)
	shares := newShares(l.subs, l.size, uint64(l.messages))
	for i := range l.subs {
		count := newTally(l.size, uint64(l.pubs*l.messages))
		tallies[i] = count
		queue, note := "", func(m *nats.Msg) { count.note(m.Subject, m.Data) }
		if l.group {
			queue, note = "bench", func(m *nats.Msg) { shares.note(i, m.Subject, m.Data) }
		}
		if err := n.subscribe(subject, queue, note); err != nil {
			return 0, err
		}
	}
	start, err := n.publish(ctx, l)
	if err != nil {
		return 0, err
	}
	if l.group {
		err = await(ctx, shares.done)
	}
	for _, count := range tallies {
		if !l.group && err == nil {
			err = await(ctx, count.done)
		}
	}
	took := time.Since(start)
	if err := errors.Join(err, n.failed()); err != nil {
		return 0, err
	}
	if l.group {
		return float64(l.messages) / took.Seconds(), shares.check(uint64(l.messages))
	}
	for _, count := range tallies {
		err = errors.Join(err, count.check(uint64(l.pubs), uint64(l.messages)))
	}
	return float64(l.pubs*l.messages*l.subs) / took.Seconds(), err
}

// publish has all publishers of a load publish, and returns when they began, once the server has everything.
func (n *natsSide) publish(ctx context.Context, l load) (start time.Time, err error) {
	conns := make([]*nats.Conn, l.pubs)
	for i := range conns {
		if conns[i], err = n.dial(); err != nil {
			return start, err
		}
	}
	topics := topicsOf(l)
	start = time.Now()
	errs := make([]error, l.pubs)
	var publishing sync.WaitGroup
	for i, c := range conns {
		publishing.Go(func() {
			payload := make([]byte, l.size)
			for k := range l.messages {
				putStamp(payload, uint64(k), 0)
				if err := c.Publish(topics[k%len(topics)], payload); err != nil {
					errs[i] = err
					return
				}
			}
			flushing, cancel := context.WithTimeout(ctx, receivePatience)
			defer cancel()
			errs[i] = c.FlushWithContext(flushing)
		})
	}
	publishing.Wait()
	return start, errors.Join(errs...)
}

func natsRoundTrip(ctx context.Context, s *settings) ([]float64, error) {
	n, err := s.newNATS(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.close()
	back := make(chan struct{}, 1)
	if err := n.subscribe(topicRoot, "", func(*nats.Msg) { back <- struct{}{} }); err != nil {
		return nil, err
	}
	c, err := n.dial()
	if err != nil {
		return nil, err
	}
	payload := make([]byte, roundTripSize)
	return roundTrip(ctx, s, back, func() error { return c.Publish(topicRoot, payload) })
}

func natsFan(ctx context.Context, s *settings) ([]float64, error) {
	n, err := s.newNATS(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.close()
	messages := int(fanMessages * s.scale)
	tallies := make([]*tally, fanSubs)
	for i := range tallies {
		count := newTally(roundTripSize, uint64(messages))
		count.timed, tallies[i] = true, count
		if err := n.subscribe(topicRoot, "", func(m *nats.Msg) { count.note(m.Subject, m.Data) }); err != nil {
			return nil, fmt.Errorf("subscriber %d: %w", i, err)
		}
	}
	c, err := n.dial()
	if err != nil {
		return nil, err
	}
	payload := make([]byte, roundTripSize)
	err = pace(ctx, messages, fanRate, func(i int, at int64) error {
		putStamp(payload, uint64(i), at)
		return c.Publish(topicRoot, payload)
	})
	if err != nil {
		return nil, err
	}
	return fanLatency(ctx, tallies, messages)
}
