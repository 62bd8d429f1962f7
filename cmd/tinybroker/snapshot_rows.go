package main

import (
	"math"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// The rows of a snapshot as JSON, one function each.

func newBrokerJSON(snap *core.Snapshot) brokerJSON {
	b, r := &snap.Broker, &snap.Rates
	return brokerJSON{
		RunID: b.RunID, Version: b.Version, StartTime: b.Started, UptimeSeconds: age(b.Started, b.Time),
		Connections: b.Connections, Topics: b.Topics, Subscriptions: b.Subscriptions, Groups: b.Groups,
		Queued: b.QueuedMessages, Memory: b.Memory, MaxMemory: b.MaxMemory,
		Published: b.Published, PublishedBytes: b.PublishedBytes, Delivered: b.Delivered, DeliveredBytes: b.DeliveredBytes,
		Unrouted: b.Unrouted, Refused: b.Refused, Dropped: b.Dropped, Lost: b.Lost, DeadLetters: b.DeadLetters, Evictions: b.Evictions,
		InPerSecond: wholeRate(r.In.Second), InPerMinute: perMinute(r.In), InBytesPerSecond: wholeRate(r.InBytes.Second),
		OutPerSecond: wholeRate(r.Out.Second), OutPerMinute: perMinute(r.Out), OutBytesPerSecond: wholeRate(r.OutBytes.Second),
	}
}

func newTopicJSON(t *core.TopicStats) topicJSON {
	return topicJSON{
		Topic: t.Topic, In: t.InMsgs, InBytes: t.InBytes, Out: t.OutMsgs, Subscriptions: t.Subscriptions, Groups: t.Groups,
		LastPublished: instant(t.LastPublished),
		InPerSecond:   wholeRate(t.In.Second), InPerMinute: perMinute(t.In), InBytesPerSecond: wholeRate(t.InBytesPS.Second),
		OutPerSecond: wholeRate(t.Out.Second), OutPerMinute: perMinute(t.Out),
	}
}

func newSubscriptionJSON(s *core.SubscriptionStats, now time.Time) subscriptionJSON {
	return subscriptionJSON{
		ID: s.ID, Client: s.Client, Peer: s.Peer, Patterns: s.Patterns, Group: s.Group, State: s.State, Overflow: s.Overflow.String(),
		Queued: s.Queued, QueuedBytes: s.QueuedBytes, Capacity: s.Capacity, InFlight: s.InFlight,
		Delivered: s.Delivered, Dropped: s.Dropped, Created: instant(s.Created), AgeSeconds: age(s.Created, now),
		OutPerSecond: wholeRate(s.Out.Second), OutPerMinute: perMinute(s.Out),
	}
}

func newGroupJSON(g *core.GroupStats, now time.Time) groupJSON {
	return groupJSON{
		Group: g.Name, Members: g.Members, Pending: g.Pending, Capacity: g.Settings.Capacity, InFlight: g.InFlight, OldestSeconds: age(g.Oldest, now),
		Accepted: g.Accepted, Delivered: g.Delivered, Acked: g.Acked, Redelivered: g.Redelivered, Expired: g.Expired,
		DeadLetters: g.DeadLetters, Dropped: g.Dropped, Ineffective: g.Ineffective, Created: instant(g.Created),
		OutPerSecond: wholeRate(g.Out.Second), OutPerMinute: perMinute(g.Out),
	}
}

func newMemberJSON(m *core.MemberStats) memberJSON {
	return memberJSON{
		ID: m.ID, Client: m.Client, Peer: m.Peer, Group: m.Group, Patterns: m.Patterns, State: m.State,
		InFlight: m.InFlight, MaxInFlight: m.MaxInFlight, Delivered: m.Delivered, Acked: m.Acked,
		SharePercent: int(math.Round(m.Share * 100)), LastAck: instant(m.LastAck), Created: instant(m.Created),
		OutPerSecond: wholeRate(m.Out.Second), OutPerMinute: perMinute(m.Out),
	}
}

func newEvictionJSON(e *core.EvictionStats) evictionJSON {
	return evictionJSON{
		Time: instant(e.Time), ID: e.ID, Client: e.Client, Peer: e.Peer, Patterns: e.Patterns, Group: e.Group,
		Reason: e.Reason, Text: e.Text, Lost: e.Lost, Queued: e.Queued, QueuedBytes: e.QueuedBytes, LivedSeconds: wholeSeconds(e.Lived),
	}
}
