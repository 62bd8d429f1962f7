package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// jetStreamPending bounds what is published and not confirmed, as rpc.Publisher does by default.
	jetStreamPending = 10_000
	// jetStreamInFlight is what all consumers together may have unacknowledged, as much as the members of the group.
	jetStreamInFlight = 4 * tinyInFlight
)

// jetStreamAcks is a stream in memory and one durable consumer that several pull from, which is how JetStream shares work.
// Publishing is asynchronous, and acknowledgements too.
func jetStreamAcks(ctx context.Context, s *settings, l load) (float64, error) {
	n, err := s.newNATS(ctx, true)
	if err != nil {
		return 0, err
	}
	defer n.close()
	js, err := n.jetStream()
	if err != nil {
		return 0, err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "BENCH", Subjects: []string{topicRoot}, Storage: jetstream.MemoryStorage, Retention: jetstream.WorkQueuePolicy,
	})
	if err != nil {
		return 0, err
	}
	_, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: jetStreamInFlight,
	})
	if err != nil {
		return 0, err
	}
	shares := newShares(l.subs, l.size, uint64(l.messages))
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for i := range l.subs {
		stop, err := n.consume(ctx, func(m jetstream.Msg) error {
			shares.note(i, m.Subject(), m.Data())
			return m.Ack()
		})
		if err != nil {
			return 0, err
		}
		stops = append(stops, stop)
	}
	start := time.Now()
	if err := publishAsync(ctx, js, l); err != nil {
		return 0, err
	}
	if err := await(ctx, shares.done); err != nil {
		return 0, errors.Join(err, n.failed())
	}
	for {
		consumer, err := stream.Consumer(ctx, "bench") // asks for its state
		if err != nil {
			return 0, err
		}
		if info := consumer.CachedInfo(); info.NumAckPending == 0 && info.NumPending == 0 {
			break
		}
	}
	took := time.Since(start)
	return float64(l.messages) / took.Seconds(), errors.Join(n.failed(), shares.check(uint64(l.messages)))
}

func (n *natsSide) jetStream() (jetstream.JetStream, error) {
	c, err := n.dial()
	if err != nil {
		return nil, err
	}
	return jetstream.New(c, jetstream.WithPublishAsyncMaxPending(jetStreamPending))
}

// consume has handle called for each message that this consumer, on a connection of its own, gets.
func (n *natsSide) consume(ctx context.Context, handle func(jetstream.Msg) error) (stop func(), err error) {
	js, err := n.jetStream()
	if err != nil {
		return nil, err
	}
	consumer, err := js.Consumer(ctx, "BENCH", "bench")
	if err != nil {
		return nil, err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		_ = handle(m) // an ack that is not sent is missed at the end
	}, jetstream.PullMaxMessages(tinyInFlight))
	if err != nil {
		return nil, err
	}
	return consuming.Stop, nil
}

func publishAsync(ctx context.Context, js jetstream.JetStream, l load) error {
	payload := make([]byte, l.size)
	for i := range l.messages {
		// The client keeps the payload until it is confirmed.
		putStamp(payload, uint64(i), 0)
		if _, err := js.PublishAsync(topicRoot, payload); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
