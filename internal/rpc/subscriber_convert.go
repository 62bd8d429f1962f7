package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// subscribeRequest is the first request of a subscription. It is the same each time a subscription is opened again.
func subscribeRequest(o *SubscribeOptions) *tinybrokerv1.SubscribeRequest {
	open := &tinybrokerv1.OpenSubscription{
		SubscriptionId: o.ID,
		TopicPatterns:  o.Patterns,
		ConsumerGroup:  o.Group,
		AckMode:        tinybrokerv1.AckMode(o.Ack),
		Overflow:       tinybrokerv1.OverflowPolicy(o.Overflow),
		Capacity:       o.Capacity,
		MaxInFlight:    uint32(o.MaxInFlight),
		MaxAttempts:    uint32(o.MaxAttempts),
		ClientName:     o.ClientName,
	}
	if o.AckDeadline != nil {
		open.AckDeadline = durationpb.New(*o.AckDeadline)
	}
	return &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: open}}
}

// openedFromProto is the reverse of openedResponse.
func openedFromProto(o *tinybrokerv1.Opened) Opened {
	return Opened{
		SubscriptionID: o.GetSubscriptionId(),
		BrokerRunID:    o.GetBrokerRunId(),
		Capacity:       o.GetCapacity(),
		CapacityBytes:  o.GetCapacityBytes(),
		Overflow:       core.OverflowPolicy(o.GetOverflow()),
		Group:          o.GetMode() == tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE,
		Ack:            core.AckMode(o.GetAckMode()),
		MaxInFlight:    int(o.GetMaxInFlight()),
		AckDeadline:    o.GetAckDeadline().AsDuration(),
		MaxAttempts:    int(o.GetMaxAttempts()),
	}
}

// endingFromProto is the reverse of closedToProto.
func endingFromProto(c *tinybrokerv1.Closed) core.Ending {
	return core.Ending{
		Reason:       endReason(c.GetReason()),
		Lost:         c.GetLost(),
		Dropped:      c.GetDropped(),
		Text:         c.GetText(),
		LastSequence: c.GetLastSequence(),
		Lived:        c.GetLived().AsDuration(),
	}
}

// endReason is the reverse of closeReason. A reason this client does not know is an end for good.
func endReason(r tinybrokerv1.CloseReason) core.EndReason {
	for reason := core.EndNone; reason <= core.EndLeft; reason++ {
		if closeReason(reason) == r && r != tinybrokerv1.CloseReason_CLOSE_REASON_UNSPECIFIED {
			return reason
		}
	}
	return core.EndClosed
}
