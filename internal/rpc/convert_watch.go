package rpc

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// queryFromProto reads what a WatchRequest asks for. The numbers of the views are the same on both sides.
func queryFromProto(r *tinybrokerv1.WatchRequest) (core.Query, error) {
	if r.GetLimit() > MaxWatchRows {
		return core.Query{}, fmt.Errorf("%w: limit %d is more than %d", core.ErrProtocol, r.GetLimit(), MaxWatchRows)
	}
	q := core.Query{
		View:    core.View(r.GetView()),
		Sort:    r.GetSort(),
		Reverse: r.GetReverse(),
		Filter:  r.GetFilter(),
		Limit:   int(r.GetLimit()),
		Topic:   r.GetTopic(),
		Group:   r.GetGroup(),
		ID:      r.GetSubscriptionId(),
	}
	err := q.Validate()
	return q, err
}

func queryToProto(q *core.Query, interval time.Duration) *tinybrokerv1.WatchRequest {
	r := &tinybrokerv1.WatchRequest{
		View:           tinybrokerv1.View(q.View),
		Sort:           q.Sort,
		Reverse:        q.Reverse,
		Filter:         q.Filter,
		Limit:          uint32(q.Limit),
		Topic:          q.Topic,
		Group:          q.Group,
		SubscriptionId: q.ID,
	}
	if interval > 0 {
		r.Interval = durationpb.New(interval)
	}
	return r
}

// stamp leaves out the zero time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func unstamp(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func ratesToProto(r core.Rates) *tinybrokerv1.Rates {
	if r == (core.Rates{}) {
		return nil
	}
	return &tinybrokerv1.Rates{Second: r.Second, Minute: r.Minute}
}

func ratesFromProto(r *tinybrokerv1.Rates) core.Rates {
	return core.Rates{Second: r.GetSecond(), Minute: r.GetMinute()}
}

func snapshotToProto(s *core.Snapshot) *tinybrokerv1.WatchResponse {
	return &tinybrokerv1.WatchResponse{
		Broker: statsToProto(s.Broker),
		Rates: &tinybrokerv1.BrokerRates{
			In:              ratesToProto(s.Rates.In),
			InBytes:         ratesToProto(s.Rates.InBytes),
			Out:             ratesToProto(s.Rates.Out),
			OutBytes:        ratesToProto(s.Rates.OutBytes),
			InHistory:       s.Rates.InHistory,
			OutHistory:      s.Rates.OutHistory,
			EvictionsMinute: s.Rates.EvictionsMinute,
			DroppedMinute:   s.Rates.DroppedMinute,
		},
		Topics:        rowsToProto(s.Topics, topicToProto),
		Subscriptions: rowsToProto(s.Subscriptions, subscriptionToProto),
		Groups:        rowsToProto(s.Groups, groupToProto),
		Members:       rowsToProto(s.Members, memberToProto),
		Evictions:     rowsToProto(s.Evictions, evictionToProto),
		Rows: &tinybrokerv1.RowCounts{
			Topics:        uint64(s.Rows.Topics),
			Subscriptions: uint64(s.Rows.Subscriptions),
			Groups:        uint64(s.Rows.Groups),
			Members:       uint64(s.Rows.Members),
			Evictions:     uint64(s.Rows.Evictions),
		},
	}
}

func snapshotFromProto(r *tinybrokerv1.WatchResponse) *core.Snapshot {
	rates, counts := r.GetRates(), r.GetRows()
	return &core.Snapshot{
		Broker: statsFromProto(r.GetBroker()),
		Rates: core.BrokerRates{
			In:              ratesFromProto(rates.GetIn()),
			InBytes:         ratesFromProto(rates.GetInBytes()),
			Out:             ratesFromProto(rates.GetOut()),
			OutBytes:        ratesFromProto(rates.GetOutBytes()),
			InHistory:       rates.GetInHistory(),
			OutHistory:      rates.GetOutHistory(),
			EvictionsMinute: rates.GetEvictionsMinute(),
			DroppedMinute:   rates.GetDroppedMinute(),
		},
		Topics:        rowsFromProto(r.GetTopics(), topicFromProto),
		Subscriptions: rowsFromProto(r.GetSubscriptions(), subscriptionFromProto),
		Groups:        rowsFromProto(r.GetGroups(), groupFromProto),
		Members:       rowsFromProto(r.GetMembers(), memberFromProto),
		Evictions:     rowsFromProto(r.GetEvictions(), evictionFromProto),
		Rows: core.RowCounts{
			Topics:        int(counts.GetTopics()),
			Subscriptions: int(counts.GetSubscriptions()),
			Groups:        int(counts.GetGroups()),
			Members:       int(counts.GetMembers()),
			Evictions:     int(counts.GetEvictions()),
		},
	}
}

func statsToProto(st core.Stats) *tinybrokerv1.BrokerStats {
	return &tinybrokerv1.BrokerStats{
		Time:              timestamppb.New(st.Time),
		StartTime:         timestamppb.New(st.Started),
		Version:           st.Version,
		RunId:             st.RunID,
		Subscriptions:     uint64(st.Subscriptions),
		Groups:            uint64(st.Groups),
		Topics:            uint64(st.Topics),
		Connections:       uint64(st.Connections),
		PublishedMessages: st.Published,
		PublishedBytes:    st.PublishedBytes,
		DeliveredMessages: st.Delivered,
		DeliveredBytes:    st.DeliveredBytes,
		UnroutedMessages:  st.Unrouted,
		RefusedMessages:   st.Refused,
		DroppedMessages:   st.Dropped,
		LostMessages:      st.Lost,
		DeadLetters:       st.DeadLetters,
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
		Groups:         int(p.GetGroups()),
		Topics:         int(p.GetTopics()),
		Connections:    int(p.GetConnections()),
		Published:      p.GetPublishedMessages(),
		PublishedBytes: p.GetPublishedBytes(),
		Delivered:      p.GetDeliveredMessages(),
		DeliveredBytes: p.GetDeliveredBytes(),
		Unrouted:       p.GetUnroutedMessages(),
		Refused:        p.GetRefusedMessages(),
		Dropped:        p.GetDroppedMessages(),
		Lost:           p.GetLostMessages(),
		DeadLetters:    p.GetDeadLetters(),
		Evictions:      p.GetEvictions(),
		Memory:         int64(p.GetMemoryBytes()),
		MaxMemory:      int64(p.GetMemoryLimitBytes()),
		QueuedMessages: int64(p.GetQueuedMessages()),
	}
}
