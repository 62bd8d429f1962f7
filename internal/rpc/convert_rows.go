package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// rowsToProto converts the rows of a snapshot.
func rowsToProto[R, P any](rows []R, convert func(*R) *P) []*P {
	if len(rows) == 0 {
		return nil
	}
	messages := make([]*P, len(rows))
	for i := range rows {
		messages[i] = convert(&rows[i])
	}
	return messages
}

// rowsFromProto is the reverse.
func rowsFromProto[P, R any](messages []*P, convert func(*P) R) []R {
	if len(messages) == 0 {
		return nil
	}
	rows := make([]R, len(messages))
	for i, m := range messages {
		rows[i] = convert(m)
	}
	return rows
}

// One pair of functions for each kind of row.

func topicToProto(t *core.TopicStats) *tinybrokerv1.TopicStats {
	return &tinybrokerv1.TopicStats{
		Topic:         t.Topic,
		InMessages:    t.InMsgs,
		InBytes:       t.InBytes,
		OutMessages:   t.OutMsgs,
		Subscriptions: uint32(t.Subscriptions),
		Groups:        uint32(t.Groups),
		LastPublished: stamp(t.LastPublished),
		In:            ratesToProto(t.In),
		Bytes:         ratesToProto(t.InBytesPS),
		Out:           ratesToProto(t.Out),
		History:       t.History,
	}
}

func topicFromProto(t *tinybrokerv1.TopicStats) core.TopicStats {
	return core.TopicStats{
		Topic:         t.GetTopic(),
		InMsgs:        t.GetInMessages(),
		InBytes:       t.GetInBytes(),
		OutMsgs:       t.GetOutMessages(),
		Subscriptions: int(t.GetSubscriptions()),
		Groups:        int(t.GetGroups()),
		LastPublished: unstamp(t.GetLastPublished()),
		In:            ratesFromProto(t.GetIn()),
		InBytesPS:     ratesFromProto(t.GetBytes()),
		Out:           ratesFromProto(t.GetOut()),
		History:       t.GetHistory(),
	}
}

func subscriptionToProto(s *core.SubscriptionStats) *tinybrokerv1.SubscriptionStats {
	return &tinybrokerv1.SubscriptionStats{
		SubscriptionId: s.ID,
		ClientName:     s.Client,
		Peer:           s.Peer,
		TopicPatterns:  s.Patterns,
		ConsumerGroup:  s.Group,
		State:          s.State,
		Overflow:       tinybrokerv1.OverflowPolicy(s.Overflow),
		Queued:         uint64(max(0, s.Queued)),
		QueuedBytes:    uint64(max(0, s.QueuedBytes)),
		Capacity:       uint64(s.Capacity),
		InFlight:       uint64(s.InFlight),
		Delivered:      s.Delivered,
		Dropped:        s.Dropped,
		Created:        stamp(s.Created),
		Out:            ratesToProto(s.Out),
	}
}

func subscriptionFromProto(s *tinybrokerv1.SubscriptionStats) core.SubscriptionStats {
	return core.SubscriptionStats{
		ID:          s.GetSubscriptionId(),
		Client:      s.GetClientName(),
		Peer:        s.GetPeer(),
		Patterns:    s.GetTopicPatterns(),
		Group:       s.GetConsumerGroup(),
		State:       s.GetState(),
		Overflow:    core.OverflowPolicy(s.GetOverflow()),
		Queued:      int(s.GetQueued()),
		QueuedBytes: int64(s.GetQueuedBytes()),
		Capacity:    int(s.GetCapacity()),
		InFlight:    int(s.GetInFlight()),
		Delivered:   s.GetDelivered(),
		Dropped:     s.GetDropped(),
		Created:     unstamp(s.GetCreated()),
		Out:         ratesFromProto(s.GetOut()),
	}
}

func groupToProto(g *core.GroupStats) *tinybrokerv1.GroupStats {
	return &tinybrokerv1.GroupStats{
		Name:        g.Name,
		Members:     uint32(g.Members),
		Pending:     uint64(g.Pending),
		InFlight:    uint64(g.InFlight),
		Oldest:      stamp(g.Oldest),
		Accepted:    g.Accepted,
		Delivered:   g.Delivered,
		Acked:       g.Acked,
		DeadLetters: g.DeadLetters,
		Dropped:     g.Dropped,
		Redelivered: g.Redelivered,
		Expired:     g.Expired,
		Ineffective: g.Ineffective,
		Created:     stamp(g.Created),
		Out:         ratesToProto(g.Out),
		AckMode:     tinybrokerv1.AckMode(g.Settings.Ack),
		Overflow:    tinybrokerv1.OverflowPolicy(g.Settings.Overflow),
		Capacity:    uint64(g.Settings.Capacity),
		AckDeadline: durationpb.New(*g.Settings.AckDeadline),
		MaxAttempts: uint32(g.Settings.MaxAttempts),
	}
}

func groupFromProto(g *tinybrokerv1.GroupStats) core.GroupStats {
	deadline := g.GetAckDeadline().AsDuration()
	return core.GroupStats{
		Name:        g.GetName(),
		Members:     int(g.GetMembers()),
		Pending:     int(g.GetPending()),
		InFlight:    int(g.GetInFlight()),
		Oldest:      unstamp(g.GetOldest()),
		Accepted:    g.GetAccepted(),
		Delivered:   g.GetDelivered(),
		Acked:       g.GetAcked(),
		DeadLetters: g.GetDeadLetters(),
		Dropped:     g.GetDropped(),
		Redelivered: g.GetRedelivered(),
		Expired:     g.GetExpired(),
		Ineffective: g.GetIneffective(),
		Created:     unstamp(g.GetCreated()),
		Out:         ratesFromProto(g.GetOut()),
		Settings: core.GroupSettings{
			Ack:         core.AckMode(g.GetAckMode()),
			Overflow:    core.OverflowPolicy(g.GetOverflow()),
			Capacity:    int(g.GetCapacity()),
			AckDeadline: &deadline,
			MaxAttempts: int(g.GetMaxAttempts()),
		},
	}
}

func memberToProto(m *core.MemberStats) *tinybrokerv1.MemberStats {
	return &tinybrokerv1.MemberStats{
		SubscriptionId: m.ID,
		ClientName:     m.Client,
		Peer:           m.Peer,
		ConsumerGroup:  m.Group,
		TopicPatterns:  m.Patterns,
		State:          m.State,
		InFlight:       uint64(m.InFlight),
		MaxInFlight:    uint64(m.MaxInFlight),
		Delivered:      m.Delivered,
		Acked:          m.Acked,
		Share:          m.Share,
		LastAck:        stamp(m.LastAck),
		Created:        stamp(m.Created),
		Out:            ratesToProto(m.Out),
	}
}

func memberFromProto(m *tinybrokerv1.MemberStats) core.MemberStats {
	return core.MemberStats{
		ID:          m.GetSubscriptionId(),
		Client:      m.GetClientName(),
		Peer:        m.GetPeer(),
		Group:       m.GetConsumerGroup(),
		Patterns:    m.GetTopicPatterns(),
		State:       m.GetState(),
		InFlight:    int(m.GetInFlight()),
		MaxInFlight: int(m.GetMaxInFlight()),
		Delivered:   m.GetDelivered(),
		Acked:       m.GetAcked(),
		Share:       m.GetShare(),
		LastAck:     unstamp(m.GetLastAck()),
		Created:     unstamp(m.GetCreated()),
		Out:         ratesFromProto(m.GetOut()),
	}
}

func evictionToProto(e *core.EvictionStats) *tinybrokerv1.EvictionStats {
	return &tinybrokerv1.EvictionStats{
		Time:           stamp(e.Time),
		SubscriptionId: e.ID,
		ClientName:     e.Client,
		Peer:           e.Peer,
		TopicPatterns:  e.Patterns,
		ConsumerGroup:  e.Group,
		Reason:         e.Reason,
		Text:           e.Text,
		Lost:           e.Lost,
		Lived:          durationpb.New(e.Lived),
		Queued:         uint64(max(0, e.Queued)),
		QueuedBytes:    uint64(max(0, e.QueuedBytes)),
	}
}

func evictionFromProto(e *tinybrokerv1.EvictionStats) core.EvictionStats {
	return core.EvictionStats{
		Time:        unstamp(e.GetTime()),
		ID:          e.GetSubscriptionId(),
		Client:      e.GetClientName(),
		Peer:        e.GetPeer(),
		Patterns:    e.GetTopicPatterns(),
		Group:       e.GetConsumerGroup(),
		Reason:      e.GetReason(),
		Text:        e.GetText(),
		Lost:        e.GetLost(),
		Lived:       e.GetLived().AsDuration(),
		Queued:      int(e.GetQueued()),
		QueuedBytes: int64(e.GetQueuedBytes()),
	}
}
