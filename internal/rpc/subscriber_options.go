package rpc

import (
	"fmt"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// SubscribeOptions describe a subscription and who is told about it. The callbacks are called by the goroutine that called
// Subscribe, and may be nil.
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

	// Group makes the subscription a member of this consumer group: each message goes to one member. Empty: broadcast, and
	// none of the settings from here to MaxExtension may be set.
	Group string
	// Ack says when a message is done: after its handler (AckExplicit, the default), or when it was sent here (AckNone).
	Ack core.AckMode
	// MaxInFlight is how many messages the broker hands to this member before it waits for acknowledgements. They are
	// held here, handled or waiting: where handling takes long, more than Parallel is of no use. 0: the broker's.
	MaxInFlight int
	// AckDeadline is how long the broker hears nothing of a delivery before it gives it to somebody else. Nil: the group's or
	// the broker's; 0: for ever. It need not be longer than handling takes, see MaxExtension.
	AckDeadline *time.Duration
	// MaxAttempts is how often a message is delivered before it becomes a dead letter. 0: the group's or the broker's.
	MaxAttempts int
	// MaxExtension is how long a handler may keep a delivery. Up to then its deadline, and that of the deliveries behind it, is
	// extended. Then the broker gets it back as failed, and the member takes no part in the group until the handler has returned.
	// It is never less than the ack deadline. 0: an hour. Negative: deadlines are not extended at all.
	MaxExtension time.Duration

	// Parallel is how many deliveries are handled at the same time, each by a goroutine of its own. Messages with the same key
	// still follow each other. 0 and 1: one after the other, by the goroutine that called Subscribe.
	Parallel int
	// Grace is how long a member that leaves waits for handlers that are running, before their deliveries go back too. 0: 5 s.
	Grace time.Duration

	// Flush, if not nil, completes what handle has begun with. It is called after the last of the deliveries that came together, and
	// when no more of them are handed out since the subscription ends. Before that, none for which handle returned nil or ErrStop
	// is acknowledged, and what Flush returns counts for all of them. Not with Parallel.
	Flush func() error

	// OnOpened is told whenever the subscription is registered: everything published from then on is seen.
	OnOpened func(Opened)
	// OnLagging is told when the queue is more than three quarters full, at most once a second.
	OnLagging func(Lagging)
	// OnEnded is told of an eviction, also of one that was learnt of only after a reconnect, before subscribing again.
	OnEnded func(core.Ending)
	// OnDropped is told how many messages the overflow policy dropped after the last delivery of a stream that the broker ended. What it dropped
	// before a delivery, that delivery says.
	OnDropped func(uint64)
	// OnGap is told when the subscription is registered again after the connection was lost or it was evicted, after OnOpened.
	OnGap func(Gap)
}

const (
	defaultMaxExtension = time.Hour
	defaultGrace        = 5 * time.Second
)

// check reports what the broker could not even be asked.
func (o *SubscribeOptions) check() error {
	for _, n := range []struct {
		name  string
		value int
	}{{"max_in_flight", o.MaxInFlight}, {"max_attempts", o.MaxAttempts}, {"parallel", o.Parallel}, {"grace", int(o.Grace)}} {
		if n.value < 0 {
			return fmt.Errorf("%w: %s is negative", core.ErrProtocol, n.name)
		}
	}
	if o.Flush != nil && o.Parallel > 1 {
		return fmt.Errorf("%w: flush is not for parallel handlers", core.ErrProtocol)
	}
	return nil
}

// Opened is what the broker says when it has registered a subscription.
type Opened struct {
	SubscriptionID string
	BrokerRunID    string
	Capacity       uint32 // queue slots, as in force
	CapacityBytes  uint64
	Overflow       core.OverflowPolicy // as in force

	// Group tells that the subscription is a member of a consumer group. The rest is for groups only, as in force.
	Group       bool
	Ack         core.AckMode
	MaxInFlight int
	AckDeadline time.Duration // 0: none
	MaxAttempts int
}

// Lagging tells how full the subscription's queue is.
type Lagging struct {
	Queued      uint64 // messages
	QueuedBytes uint64
	Capacity    uint32 // slots
}

// Gap tells of a time without a connection, or between an eviction and the next subscription. A broadcast subscription has missed what was published meanwhile. In a
// group that went to other members or has waited, unless the broker was restarted, or the group ended, having had no member for too long.
type Gap struct {
	Outage    time.Duration // from the loss or eviction until the subscription was registered again
	Evicted   bool          // by an eviction; the connection was there all the time
	Restarted bool          // it is another run of the broker
}

// Delivery is one message as a subscription receives it. It and what it refers to are valid until the handler returns,
// but Topic may be kept. With SubscribeOptions.Parallel all of it may be kept.
type Delivery struct {
	core.Message
	// Sequence is the delivery number, counted from 1. It starts anew when the subscription is opened again.
	Sequence uint64
	// Attempt is 1 for a first delivery.
	Attempt uint32
	// DroppedBefore is how many messages the overflow policy dropped just before this one. They have no delivery number.
	DroppedBefore uint64
	// More says that another message is at hand and its delivery follows at once, unless the subscription is just being left.
	// It is never set with SubscribeOptions.Parallel.
	More bool

	heard uint64 // how many of the member's requests the broker had dealt with when it sent this
}
