package core

import "time"

// Snapshot is what the broker shows of itself at one moment. Rows are as the Query asked for them.
type Snapshot struct {
	Broker        Stats
	Rates         BrokerRates
	Topics        []TopicStats
	Subscriptions []SubscriptionStats
	Groups        []GroupStats
	Members       []MemberStats
	Evictions     []EvictionStats
	// Rows tells for each of these how many rows the filter let through, those that the limit left out included.
	Rows RowCounts
}

// RowCounts counts rows by kind.
type RowCounts struct{ Topics, Subscriptions, Groups, Members, Evictions int }

// Rates are per second: over the last second and over the last minute, or as much of it as the broker, or what is
// measured, has lived.
type Rates struct{ Second, Minute float64 }

// BrokerRates are the rates of the whole broker.
type BrokerRates struct {
	In, InBytes, Out, OutBytes Rates
	// InHistory and OutHistory are messages in each of the last seconds, the oldest first; at most 60.
	InHistory, OutHistory []uint32
	// EvictionsMinute and DroppedMinute are totals of the last minute.
	EvictionsMinute, DroppedMinute uint64
}

// TopicStats describe a topic that was published to lately. The broker follows a bounded number of topics: one that is
// idle is forgotten, and with it its counters.
type TopicStats struct {
	Topic         string
	InMsgs        uint64 // messages accepted
	InBytes       uint64
	OutMsgs       uint64 // messages queued at receivers; one message counts once for each
	Subscriptions int    // broadcast subscriptions that match
	Groups        int    // consumer groups that match
	LastPublished time.Time
	In, InBytesPS Rates
	Out           Rates
	History       []uint32 // messages accepted in each of the last seconds, the oldest first; at most 60
}

// SubscriptionStats describe a live broadcast subscription or a member of a group.
type SubscriptionStats struct {
	ID          string
	Client      string
	Peer        string
	Patterns    []string
	Group       string // empty: broadcast
	State       string // StateActive, StateLagging, StateStalled or StateLeaving
	Overflow    OverflowPolicy
	Queued      int // messages waiting; for a member those of its group
	QueuedBytes int64
	Capacity    int
	InFlight    int // members only
	Delivered   uint64
	Dropped     uint64
	Created     time.Time
	Out         Rates
}

// The states of a subscription.
const (
	StateActive  = "active"
	StateLagging = "lagging" // its queue is more than three quarters full
	StateStalled = "stalled" // nobody has taken what was written to its stream for a second or more, and more waits
	StateLeaving = "leaving" // gets nothing more
)

// MemberStats describe a member of a consumer group.
type MemberStats struct {
	ID          string
	Client      string
	Peer        string
	Group       string
	Patterns    []string
	State       string
	InFlight    int
	MaxInFlight int
	Delivered   uint64
	Acked       uint64    // done: acknowledged or, without acks, written
	Share       float64   // of what the group's present members have done, 0 to 1
	LastAck     time.Time // zero: never
	Created     time.Time
	Out         Rates
}

// EvictionStats describe an eviction.
type EvictionStats struct {
	Time     time.Time
	ID       string
	Client   string
	Peer     string
	Patterns []string
	Group    string
	Reason   string
	Text     string
	Queued   int // messages that waited in its queue then; for a member 0: they are its group's
	// QueuedBytes is their size.
	QueuedBytes int64
	Lost        uint64
	Lived       time.Duration
}
