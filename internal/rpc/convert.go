package rpc

import (
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// subscribeOptions reads an `open`.
func subscribeOptions(open *tinybrokerv1.OpenSubscription) (core.SubscribeOptions, error) {
	o := core.SubscribeOptions{
		ID:       open.GetSubscriptionId(),
		Patterns: open.GetTopicPatterns(),
		Client:   open.GetClientName(),
		Overflow: core.OverflowPolicy(open.GetOverflow()),
		Capacity: int(open.GetCapacity()),
	}
	switch {
	case open.GetConsumerGroup() != "" && open.GetMode() == tinybrokerv1.DeliveryMode_DELIVERY_MODE_MULTI:
		return o, fmt.Errorf("%w: mode MULTI has no consumer_group", core.ErrProtocol)
	case open.GetMode() == tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE && open.GetConsumerGroup() == "":
		return o, fmt.Errorf("%w: mode SINGLE needs a consumer_group", core.ErrProtocol)
	case open.GetConsumerGroup() != "":
		return o, fmt.Errorf("%w: consumer groups are not supported by this version", core.ErrProtocol)
	case tinybrokerv1.DeliveryMode_name[int32(open.GetMode())] == "":
		return o, fmt.Errorf("%w: unknown mode %d", core.ErrProtocol, open.GetMode())
	case tinybrokerv1.AckMode_name[int32(open.GetAckMode())] == "":
		return o, fmt.Errorf("%w: unknown ack_mode %d", core.ErrProtocol, open.GetAckMode())
	case open.GetAckMode() == tinybrokerv1.AckMode_ACK_MODE_EXPLICIT:
		return o, fmt.Errorf("%w: a broadcast subscription has no acks", core.ErrProtocol)
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
		Text:         e.Text,
		LastSequence: e.LastSequence,
		Lived:        durationpb.New(e.Lived),
	}
}

func closedResponse(e core.Ending) *tinybrokerv1.SubscribeResponse {
	return &tinybrokerv1.SubscribeResponse{Closed: closedToProto(e)}
}

func openedResponse(b *core.Broker, s *core.Subscription) *tinybrokerv1.SubscribeResponse {
	slots, bytes := s.Capacity()
	opened := &tinybrokerv1.Opened{
		SubscriptionId: s.ID(),
		BrokerRunId:    b.RunID(),
		Capacity:       uint32(slots),
		CapacityBytes:  uint64(bytes),
		Mode:           tinybrokerv1.DeliveryMode_DELIVERY_MODE_MULTI,
		Overflow:       tinybrokerv1.OverflowPolicy(s.Overflow()),
	}
	if previous := s.Previous(); previous != nil {
		opened.Previous = closedToProto(*previous)
	}
	return &tinybrokerv1.SubscribeResponse{Opened: opened}
}

func statsToProto(st core.Stats) *tinybrokerv1.BrokerStats {
	return &tinybrokerv1.BrokerStats{
		Time:              timestamppb.New(st.Time),
		StartTime:         timestamppb.New(st.Started),
		Version:           st.Version,
		RunId:             st.RunID,
		Subscriptions:     uint64(st.Subscriptions),
		PublishedMessages: st.Published,
		PublishedBytes:    st.PublishedBytes,
		DeliveredMessages: st.Delivered,
		DeliveredBytes:    st.DeliveredBytes,
		UnroutedMessages:  st.Unrouted,
		RefusedMessages:   st.Refused,
		DroppedMessages:   st.Dropped,
		LostMessages:      st.Lost,
		Evictions:         st.Evictions,
		MemoryBytes:       uint64(st.Memory),
		MemoryLimitBytes:  uint64(st.MaxMemory),
		QueuedMessages:    uint64(max(0, st.QueuedMessages)),
	}
}

func statsFromProto(p *tinybrokerv1.BrokerStats) core.Stats {
	return core.Stats{
		Time:           p.GetTime().AsTime(),
		Started:        p.GetStartTime().AsTime(),
		Version:        p.GetVersion(),
		RunID:          p.GetRunId(),
		Subscriptions:  int(p.GetSubscriptions()),
		Published:      p.GetPublishedMessages(),
		PublishedBytes: p.GetPublishedBytes(),
		Delivered:      p.GetDeliveredMessages(),
		DeliveredBytes: p.GetDeliveredBytes(),
		Unrouted:       p.GetUnroutedMessages(),
		Refused:        p.GetRefusedMessages(),
		Dropped:        p.GetDroppedMessages(),
		Lost:           p.GetLostMessages(),
		Evictions:      p.GetEvictions(),
		Memory:         int64(p.GetMemoryBytes()),
		MaxMemory:      int64(p.GetMemoryLimitBytes()),
		QueuedMessages: int64(p.GetQueuedMessages()),
	}
}
