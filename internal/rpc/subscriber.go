package rpc

import (
	"context"
	"errors"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// SubscribeOptions describe a subscription and who is told about it. The callbacks are called by the goroutine that called
// Subscribe, between messages, and may be nil.
type SubscribeOptions struct {
	// ID names the subscription; a live one of that name is taken over. Empty: the broker makes one up, and the
	// subscription keeps it when it is opened again.
	ID string
	// Patterns say what to receive.
	Patterns []string
	// ClientName is a label for people.
	ClientName string
	// Overflow is what happens when the queue is full.
	Overflow core.OverflowPolicy
	// Capacity is the number of queue slots. 0: the broker's.
	Capacity uint32
	// NoResubscribe makes an eviction the end: Subscribe returns it as a *core.EndedError.
	NoResubscribe bool

	// OnOpened is told whenever the subscription is registered: everything published from then on is seen.
	OnOpened func(Opened)
	// OnLagging is told when the queue is more than three quarters full, at most once a second.
	OnLagging func(Lagging)
	// OnEnded is told of an eviction, also of one that was learnt of only after a reconnect, before subscribing again.
	OnEnded func(core.Ending)
	// OnGap is told when the connection was lost and is back, after OnOpened.
	OnGap func(Gap)
}

// Opened is what the broker says when it has registered a subscription.
type Opened struct {
	SubscriptionID string
	BrokerRunID    string
	Capacity       uint32 // queue slots, as in force
	CapacityBytes  uint64
	Overflow       core.OverflowPolicy // as in force
}

// Lagging tells how full the subscription's queue is.
type Lagging struct {
	Queued      uint64 // messages
	QueuedBytes uint64
	Capacity    uint32 // slots
}

// Gap says that what was published while the connection was away was missed.
type Gap struct {
	Outage    time.Duration // from the loss until the subscription was registered again
	Restarted bool          // it is another run of the broker
}

// Delivery is one message as a subscription receives it. It and what it refers to are valid until the handler returns,
// but Topic may be kept.
type Delivery struct {
	core.Message
	// Sequence is the delivery number, counted from 1. It starts anew when the subscription is opened again.
	Sequence uint64
	// Attempt is 1 for a first delivery.
	Attempt uint32
	// DroppedBefore is how many messages the overflow policy dropped just before this one. They have no delivery number.
	DroppedBefore uint64
	// More says that another message is at hand and its delivery follows at once.
	More bool
}

// Subscribe receives messages and gives them to handle, one after the other, until ctx ends, handle fails or the broker
// says something that trying again does not help against. It returns that: the context's error, that of handle
// as it is, a *core.EndedError when the broker ended the subscription for good, an *UnreachableError, or
// the broker's error.
//
// A subscription that was evicted or whose connection was lost is opened again under the same id, after a growing
// pause. The pause becomes short again once a stream has lived for a minute. While handle works nothing is read: the
// messages wait in the broker's queue.
func (c *Client) Subscribe(ctx context.Context, o SubscribeOptions, handle func(*Delivery) error) error {
	s := &subscriber{client: c, options: o, handle: handle, retry: retrial{client: c}}
	call, err := s.open(ctx, ctx, false)
	if err != nil {
		return c.callError(err)
	}
	for {
		s.registered(call)
		err := s.learnt(call)
		if err == nil {
			err = s.receive(call)
		}
		call.end()
		if ctx.Err() != nil && !s.stopped {
			return context.Cause(ctx)
		}
		s.retry.lived(time.Since(call.openedAt))
		if call, err = s.reopen(ctx, err); err != nil {
			return err
		}
	}
}

// subscriber is one Subscribe.
type subscriber struct {
	client  *Client
	options SubscribeOptions
	handle  func(*Delivery) error
	retry   retrial

	frames   deliveries
	delivery Delivery

	stopped bool      // what receive or learnt returned is for the caller
	runID   string    // of the broker at the last stream
	lostAt  time.Time // when the connection was lost; zero: it was not
	evicted bool      // the last stream ended with an eviction, which was told
}

// reopen opens the next stream after one has ended for err, or returns the error for which there will be none.
func (s *subscriber) reopen(ctx context.Context, err error) (call *subscribeCall, _ error) {
	if s.stopped {
		return nil, err
	}
	if ended, ok := errors.AsType[*core.EndedError](err); ok {
		if !ended.Reason.Resumable() || s.options.NoResubscribe {
			return nil, err
		}
		s.evicted = true
		s.tellEnded(ended.Ending)
		if err := sleep(ctx, s.retry.gaps.afterEviction()); err != nil {
			return nil, err
		}
		if call, err = s.open(ctx, ctx, false); err == nil {
			return call, nil
		}
	}
	if s.lostAt = time.Now(); !retryable(err) {
		return nil, s.client.callError(err)
	}
	return call, s.retry.run(ctx, err, func(opening context.Context) (err error) {
		call, err = s.open(ctx, opening, true)
		return err
	})
}

func (s *subscriber) tellEnded(e core.Ending) {
	if s.options.OnEnded != nil {
		s.options.OnEnded(e)
	}
}

// registered tells of a new stream.
func (s *subscriber) registered(call *subscribeCall) {
	opened := call.opened
	s.options.ID = opened.GetSubscriptionId()
	restarted := s.runID != "" && s.runID != opened.GetBrokerRunId()
	s.runID = opened.GetBrokerRunId()
	if s.options.OnOpened != nil {
		s.options.OnOpened(Opened{
			SubscriptionID: opened.GetSubscriptionId(),
			BrokerRunID:    opened.GetBrokerRunId(),
			Capacity:       opened.GetCapacity(),
			CapacityBytes:  opened.GetCapacityBytes(),
			Overflow:       core.OverflowPolicy(opened.GetOverflow()),
		})
	}
	if !s.lostAt.IsZero() && s.options.OnGap != nil {
		s.options.OnGap(Gap{Outage: call.openedAt.Sub(s.lostAt), Restarted: restarted})
	}
}

// learnt tells of an eviction that could not be read of since the connection was lost. An error: that was the end.
func (s *subscriber) learnt(call *subscribeCall) error {
	unknown := !s.lostAt.IsZero() && !s.evicted && call.opened.GetPrevious() != nil
	s.lostAt, s.evicted = time.Time{}, false
	if !unknown {
		return nil
	}
	previous := endingFromProto(call.opened.GetPrevious())
	if s.options.NoResubscribe {
		s.stopped = true
		return &core.EndedError{Ending: previous}
	}
	s.tellEnded(previous)
	return nil
}
