package rpc

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// checkOpen refuses an `open` that contradicts itself.
func checkOpen(open *tinybrokerv1.OpenSubscription) error {
	group, mode := open.GetConsumerGroup(), open.GetMode()
	switch {
	case tinybrokerv1.DeliveryMode_name[int32(mode)] == "":
		return fmt.Errorf("%w: unknown mode %d", core.ErrProtocol, mode)
	case tinybrokerv1.AckMode_name[int32(open.GetAckMode())] == "":
		return fmt.Errorf("%w: unknown ack_mode %d", core.ErrProtocol, open.GetAckMode())
	case group != "" && mode == tinybrokerv1.DeliveryMode_DELIVERY_MODE_MULTI:
		return fmt.Errorf("%w: mode MULTI has no consumer_group", core.ErrProtocol)
	case group == "" && mode == tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE:
		return fmt.Errorf("%w: mode SINGLE needs a consumer_group", core.ErrProtocol)
	case group == "" && open.GetAckMode() == tinybrokerv1.AckMode_ACK_MODE_EXPLICIT:
		return fmt.Errorf("%w: a broadcast subscription has no acks", core.ErrProtocol)
	case group == "" && (open.GetMaxInFlight() != 0 || open.GetAckDeadline() != nil || open.GetMaxAttempts() != 0):
		return fmt.Errorf("%w: max_in_flight, ack_deadline and max_attempts need a consumer_group", core.ErrProtocol)
	}
	return nil
}

// subscribeOptions reads an `open` for a broadcast subscription.
func subscribeOptions(open *tinybrokerv1.OpenSubscription) core.SubscribeOptions {
	return core.SubscribeOptions{
		ID:       open.GetSubscriptionId(),
		Patterns: open.GetTopicPatterns(),
		Client:   open.GetClientName(),
		Overflow: core.OverflowPolicy(open.GetOverflow()),
		Capacity: int(open.GetCapacity()),
	}
}

// joinOptions reads an `open` for a member of a group.
func joinOptions(open *tinybrokerv1.OpenSubscription) (core.JoinOptions, error) {
	o := core.JoinOptions{
		Group:       open.GetConsumerGroup(),
		ID:          open.GetSubscriptionId(),
		Patterns:    open.GetTopicPatterns(),
		Client:      open.GetClientName(),
		MaxInFlight: int(open.GetMaxInFlight()),
		Settings: core.GroupSettings{
			Ack:         core.AckMode(open.GetAckMode()),
			Overflow:    core.OverflowPolicy(open.GetOverflow()),
			Capacity:    int(open.GetCapacity()),
			MaxAttempts: int(open.GetMaxAttempts()),
		},
	}
	if open.GetAckDeadline() != nil {
		d, err := durationFromProto("ack_deadline", open.GetAckDeadline())
		if err != nil {
			return o, err
		}
		o.Settings.AckDeadline = &d
	}
	return o, nil
}

// The enumerations of core and of the contract have the same numbers where both have them; a test holds them together.

func closeReason(r core.EndReason) tinybrokerv1.CloseReason {
	switch r {
	case core.EndEvicted:
		return tinybrokerv1.CloseReason_CLOSE_REASON_EVICTED
	case core.EndStalled:
		return tinybrokerv1.CloseReason_CLOSE_REASON_STALLED
	case core.EndReplaced:
		return tinybrokerv1.CloseReason_CLOSE_REASON_REPLACED
	case core.EndKicked:
		return tinybrokerv1.CloseReason_CLOSE_REASON_KICKED
	case core.EndShuttingDown:
		return tinybrokerv1.CloseReason_CLOSE_REASON_SHUTTING_DOWN
	case core.EndRevoked:
		return tinybrokerv1.CloseReason_CLOSE_REASON_REVOKED
	case core.EndLeft:
		return tinybrokerv1.CloseReason_CLOSE_REASON_LEFT
	}
	return tinybrokerv1.CloseReason_CLOSE_REASON_UNSPECIFIED
}

func closedToProto(e core.Ending) *tinybrokerv1.Closed {
	return &tinybrokerv1.Closed{
		Reason:       closeReason(e.Reason),
		Lost:         e.Lost,
		Dropped:      e.Dropped,
		Text:         e.Text,
		LastSequence: e.LastSequence,
		Lived:        durationpb.New(e.Lived),
	}
}

func closedResponse(e core.Ending) *tinybrokerv1.SubscribeResponse {
	return &tinybrokerv1.SubscribeResponse{Closed: closedToProto(e)}
}

func openedResponse(b *core.Broker, c consumer) *tinybrokerv1.SubscribeResponse {
	slots, bytes := c.Capacity()
	opened := &tinybrokerv1.Opened{
		SubscriptionId: c.ID(),
		BrokerRunId:    b.RunID(),
		Capacity:       uint32(slots),
		CapacityBytes:  uint64(bytes),
	}
	switch c := c.(type) {
	case *core.Subscription:
		opened.Mode = tinybrokerv1.DeliveryMode_DELIVERY_MODE_MULTI
		opened.Overflow = tinybrokerv1.OverflowPolicy(c.Overflow())
	case *core.Member:
		s := c.Settings()
		opened.Mode = tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE
		opened.Overflow = tinybrokerv1.OverflowPolicy(s.Overflow)
		opened.AckMode = tinybrokerv1.AckMode(s.Ack)
		opened.MaxInFlight = uint32(c.MaxInFlight())
		opened.AckDeadline = durationpb.New(*s.AckDeadline)
		opened.MaxAttempts = uint32(s.MaxAttempts)
	}
	if previous := c.Previous(); previous != nil {
		opened.Previous = closedToProto(*previous)
	}
	return &tinybrokerv1.SubscribeResponse{Opened: opened}
}

func nackFromProto(n *tinybrokerv1.Nack) (core.Nack, error) {
	nack := core.Nack{Reason: n.GetReason()}
	switch n.GetAction() {
	case tinybrokerv1.NackAction_NACK_ACTION_UNSPECIFIED, tinybrokerv1.NackAction_NACK_ACTION_RETRY:
		nack.Action = core.NackRetry
	case tinybrokerv1.NackAction_NACK_ACTION_RELEASE:
		nack.Action = core.NackRelease
	case tinybrokerv1.NackAction_NACK_ACTION_REJECT:
		nack.Action = core.NackReject
	default:
		return nack, fmt.Errorf("%w: unknown nack action %d", core.ErrProtocol, n.GetAction())
	}
	if n.GetDelay() != nil {
		d, err := durationFromProto("delay", n.GetDelay())
		if err != nil {
			return nack, err
		}
		d = min(d, maxRequestDuration)
		nack.Delay = &d
	}
	return nack, nil
}

// maxRequestDuration bounds delays and deadlines that a member asks for. It gets that instead of a longer one: an error would end its stream, and charge
// it for everything in flight.
const maxRequestDuration = 24 * time.Hour

// durationFromProto reads a Duration that may be absent, which is 0.
func durationFromProto(what string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if d.CheckValid() != nil || d.GetSeconds() < 0 || d.GetNanos() < 0 {
		return 0, fmt.Errorf("%w: %s is negative or out of range", core.ErrProtocol, what)
	}
	return d.AsDuration(), nil
}
