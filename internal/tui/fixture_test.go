package tui

import (
	"fmt"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// noon is when the fixed snapshots were taken.
var noon = time.Date(2026, 3, 14, 12, 5, 16, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func perSecond(v float64) core.Rates { return core.Rates{Second: v, Minute: v * 0.9} }

// wave is a history that goes up and down.
func wave(top uint32) []uint32 {
	h := make([]uint32, 60)
	for i := range h {
		step := uint32(i % 20)
		h[i] = top * min(step, 20-step) / 10
	}
	return h
}

// sample is a broker at work, the same every time.
func sample() *core.Snapshot {
	deadline := 30 * time.Second
	return &core.Snapshot{
		Broker: core.Stats{
			Time: noon, Started: ago(76*time.Hour + 5*time.Minute), RunID: "run-1", Version: "v1.2.3",
			Subscriptions: 311, Groups: 12, Topics: 128, Connections: 42, QueuedMessages: 91_000, Memory: 118 << 20, MaxMemory: 512 << 20,
			Published: 91_234_567, PublishedBytes: 12_345_678_901, Delivered: 273_703_701, DeliveredBytes: 37_037_036_703,
			Dropped: 0, Lost: 9100, Evictions: 17, DeadLetters: 3,
		},
		Rates: core.BrokerRates{
			In: perSecond(18_400), InBytes: perSecond(3_100_000), Out: perSecond(55_200), OutBytes: perSecond(9_400_000),
			InHistory: wave(18_400), OutHistory: wave(55_200), EvictionsMinute: 2, DroppedMinute: 0,
		},
		Topics: []core.TopicStats{
			{Topic: "orders.created", InMsgs: 8_200_123, InBytes: 1_100_000_000, OutMsgs: 24_600_369, Subscriptions: 3, Groups: 1, LastPublished: ago(2 * time.Millisecond), In: perSecond(8200), InBytesPS: perSecond(1_400_000), Out: perSecond(24_600), History: wave(8200)},
			{Topic: "orders.updated", InMsgs: 4_100_000, InBytes: 500_000_000, OutMsgs: 12_300_000, Subscriptions: 3, LastPublished: ago(5 * time.Millisecond), In: perSecond(4100), InBytesPS: perSecond(700_000), Out: perSecond(12_300), History: wave(4100)},
			{Topic: "metrics.host.cpu.and-a-very-long-name-that-does-not-fit-into-any-column", InMsgs: 61_000, OutMsgs: 61_000, Subscriptions: 1, LastPublished: ago(340 * time.Millisecond), In: perSecond(61), InBytesPS: perSecond(6100), Out: perSecond(61), History: wave(61)},
			{Topic: "deploy.rollout", InMsgs: 12, OutMsgs: 24, Subscriptions: 2, LastPublished: ago(3*time.Minute + 12*time.Second), In: core.Rates{Minute: 0.02}},
			{Topic: "世界.ニュース", InMsgs: 7, OutMsgs: 0, LastPublished: ago(26 * time.Hour)},
		},
		Subscriptions: []core.SubscriptionStats{
			{ID: "b7k2mqx4zt", Client: "billing-8", Peer: "10.1.2.3:51234", Patterns: []string{"orders.created", "orders.updated"}, State: core.StateLagging, Overflow: core.OverflowEvict, Queued: 63_900, QueuedBytes: 8_100_000, Capacity: 65_536, Delivered: 1_234_567, Created: ago(3*time.Hour + 5*time.Minute), Out: perSecond(7400)},
			{ID: "a91c0pl2vw", Client: "analytics", Peer: "10.1.2.4:40112", Patterns: []string{"metrics.**"}, State: core.StateActive, Overflow: core.OverflowDropOldest, Queued: 26_900, QueuedBytes: 2_700_000, Capacity: 65_536, Delivered: 61_000, Dropped: 4200, Created: ago(26 * time.Hour), Out: perSecond(61)},
			{ID: "frozen-1", Client: "root@build-7.example", Peer: "10.1.2.5:40113", Patterns: []string{"**", "!metrics.**"}, State: core.StateStalled, Overflow: core.OverflowEvict, Queued: 12, QueuedBytes: 1800, Capacity: 100, Delivered: 3, Created: ago(42 * time.Second)},
			{ID: "m1", Client: "worker-1", Peer: "10.1.2.6:40113", Patterns: []string{"jobs.*"}, Group: "workers", State: core.StateActive, Overflow: core.OverflowReject, Queued: 300, QueuedBytes: 30_000, Capacity: 10_000, InFlight: 3, Delivered: 9000, Created: ago(2 * time.Hour), Out: perSecond(40)},
			{ID: "idle", Client: "dashboard", Peer: "@", Patterns: []string{"nothing"}, State: core.StateActive, Overflow: core.OverflowEvict, Capacity: 65_536, Created: ago(500 * time.Millisecond)},
		},
		Groups: []core.GroupStats{
			{Name: "workers", Members: 3, Pending: 300, InFlight: 70, Oldest: ago(4 * time.Second), Accepted: 20_373, Delivered: 20_100, Acked: 20_000, DeadLetters: 3, Redelivered: 27, Expired: 20, Created: ago(2 * time.Hour), Out: perSecond(80), Settings: core.GroupSettings{Ack: core.AckExplicit, Overflow: core.OverflowReject, Capacity: 10_000, AckDeadline: &deadline, MaxAttempts: 5}},
			{Name: "mailers", Members: 0, Pending: 9000, Oldest: ago(90 * time.Second), Accepted: 9000, Created: ago(3 * time.Hour), Settings: core.GroupSettings{Ack: core.AckExplicit, Overflow: core.OverflowReject, Capacity: 10_000, AckDeadline: &deadline, MaxAttempts: 5}},
		},
		Members: []core.MemberStats{
			{ID: "m3", Client: "worker-3", Peer: "10.1.2.8:40115", Group: "workers", Patterns: []string{"jobs.*"}, State: core.StateStalled, InFlight: 64, MaxInFlight: 64, Delivered: 100, Acked: 36, Share: 0.0018, LastAck: ago(95 * time.Second), Created: ago(2 * time.Hour)},
			{ID: "m1", Client: "worker-1", Peer: "10.1.2.6:40113", Group: "workers", Patterns: []string{"jobs.*"}, State: core.StateActive, InFlight: 3, MaxInFlight: 64, Delivered: 9000, Acked: 8997, Share: 0.45, LastAck: ago(12 * time.Millisecond), Created: ago(2 * time.Hour), Out: perSecond(40)},
			{ID: "m2", Client: "worker-2", Peer: "10.1.2.7:40114", Group: "workers", Patterns: []string{"jobs.*"}, State: core.StateActive, InFlight: 3, MaxInFlight: 64, Delivered: 11_000, Acked: 10_967, Share: 0.5482, LastAck: ago(8 * time.Millisecond), Created: ago(2 * time.Hour), Out: perSecond(40)},
		},
		Evictions: []core.EvictionStats{
			{Time: ago(3*time.Minute + 32*time.Second), ID: "k3v9w1", Client: "billing-7", Peer: "10.1.2.9:50001", Patterns: []string{"orders.created"}, Reason: "evicted", Text: "queue full (65536)", Lost: 65_537, Queued: 65_536, QueuedBytes: 8_400_000, Lived: 3*time.Minute + 12*time.Second},
			{Time: ago(2*time.Hour + 5*time.Minute), ID: "m9", Client: "worker-9", Peer: "10.1.2.9:50002", Patterns: []string{"jobs.*"}, Group: "workers", Reason: "stalled", Text: "stalled", Lived: 44 * time.Second},
			{Time: ago(50 * time.Hour), ID: "frozen-0", Client: "root@build-7.example", Patterns: []string{"**"}, Reason: "evicted", Text: "queue full (100)", Lost: 101, Queued: 100, QueuedBytes: 12_000, Lived: 26 * time.Hour},
		},
		Rows: core.RowCounts{Topics: 128, Subscriptions: 311, Groups: 12, Members: 3, Evictions: 17},
	}
}

// many is a broker with n topics, subscriptions, groups, members and evictions, whose names come from name.
func many(n int, name func(i int) string) *core.Snapshot {
	one := sample()
	snap := *one
	snap.Topics, snap.Subscriptions, snap.Groups, snap.Members, snap.Evictions = nil, nil, nil, nil, nil
	for i := range n {
		t, s, g, m, e := one.Topics[i%5], one.Subscriptions[i%5], one.Groups[i%2], one.Members[i%3], one.Evictions[i%3]
		text := name(i)
		t.Topic, s.ID, g.Name, m.ID, e.ID = text, text, text, text, text
		s.Client, m.Client, e.Client = text, text, text
		s.Patterns, m.Patterns, e.Patterns = []string{text, text}, []string{text}, []string{text}
		e.Text = text
		snap.Topics, snap.Subscriptions, snap.Groups = append(snap.Topics, t), append(snap.Subscriptions, s), append(snap.Groups, g)
		snap.Members, snap.Evictions = append(snap.Members, m), append(snap.Evictions, e)
	}
	snap.Rows = core.RowCounts{Topics: n, Subscriptions: n, Groups: n, Members: n, Evictions: n}
	return &snap
}

func numbered(i int) string { return fmt.Sprintf("name.%05d", i) }
