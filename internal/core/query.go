package core

import (
	"cmp"
	"fmt"
	"slices"
)

// Query says what a Snapshot is to show.
type Query struct {
	// View says which rows. The zero value shows the totals alone.
	View View
	// Sort names the column to sort by, see SortColumns; empty: the view's first. Most first, names from A; Reverse turns it round.
	Sort    string
	Reverse bool
	// Filter keeps the rows in which a name (topic, id, client, pattern, group, peer, reason) contains it, whatever the case. Empty: all.
	Filter string
	// Limit is the most rows of each kind; 0: DefaultLimit.
	Limit int
	// Topic keeps the subscriptions that would receive this topic, Group those and the members of this group, ID the
	// subscription or member of that name. Empty: all.
	Topic, Group, ID string
}

// DefaultLimit is how many rows of a kind a snapshot has when the query does not say.
const DefaultLimit = 1000

// View names the rows of a snapshot.
type View int

// The views.
const (
	ViewTotals        View = iota // no rows
	ViewOverview                  // busiest topics, fullest queues (subscriptions without members, and groups), last evictions
	ViewTopics                    // topics
	ViewSubscriptions             // broadcast subscriptions and members
	ViewGroups                    // groups
	ViewMembers                   // members of groups
	ViewEvictions                 // the last evictions
	ViewAll                       // everything
)

// sorting is a column by which rows of one kind can be sorted. Ties are broken by name.
type sorting[T any] struct {
	column  string
	compare func(a, b *T) int
}

// most puts large values first.
func most[T any, V cmp.Ordered](f func(*T) V) func(a, b *T) int {
	return func(a, b *T) int { return cmp.Compare(f(b), f(a)) }
}

// least puts small values first.
func least[T any, V cmp.Ordered](f func(*T) V) func(a, b *T) int {
	return func(a, b *T) int { return cmp.Compare(f(a), f(b)) }
}

var topicSortings = []sorting[TopicStats]{
	{"in", most(func(t *TopicStats) float64 { return t.In.Second })},
	{"topic", least(func(t *TopicStats) string { return t.Topic })},
	{"out", most(func(t *TopicStats) float64 { return t.Out.Second })},
	{"bytes", most(func(t *TopicStats) float64 { return t.InBytesPS.Second })},
	{"subs", most(func(t *TopicStats) int { return t.Subscriptions })},
	{"groups", most(func(t *TopicStats) int { return t.Groups })},
	{"last", most(func(t *TopicStats) int64 { return t.LastPublished.UnixNano() })},
}

var subscriptionSortings = []sorting[SubscriptionStats]{
	{"queue", most(func(s *SubscriptionStats) float64 { return float64(s.Queued) / float64(max(1, s.Capacity)) })},
	{"subscription", least(func(s *SubscriptionStats) string { return s.ID })},
	{"client", least(func(s *SubscriptionStats) string { return s.Client })},
	{"out", most(func(s *SubscriptionStats) float64 { return s.Out.Second })},
	{"dropped", most(func(s *SubscriptionStats) uint64 { return s.Dropped })},
	{"age", least(func(s *SubscriptionStats) int64 { return s.Created.UnixNano() })},
}

var subscriptionRowSortings = func() []sorting[subscriptionRow] {
	sortings := make([]sorting[subscriptionRow], len(subscriptionSortings))
	for i, s := range subscriptionSortings {
		sortings[i] = sorting[subscriptionRow]{s.column, func(a, b *subscriptionRow) int {
			return s.compare(&a.SubscriptionStats, &b.SubscriptionStats)
		}}
	}
	return sortings
}()

var groupSortings = []sorting[GroupStats]{
	{"pending", most(func(g *GroupStats) int { return g.Pending })},
	{"group", least(func(g *GroupStats) string { return g.Name })},
	{"members", most(func(g *GroupStats) int { return g.Members })},
	{"in-flight", most(func(g *GroupStats) int { return g.InFlight })},
	{"out", most(func(g *GroupStats) float64 { return g.Out.Second })},
	{"redelivered", most(func(g *GroupStats) uint64 { return g.Redelivered })},
	{"dead", most(func(g *GroupStats) uint64 { return g.DeadLetters })},
}

var memberSortings = []sorting[MemberStats]{
	{"in-flight", most(func(m *MemberStats) int { return m.InFlight })},
	{"member", least(func(m *MemberStats) string { return m.ID })},
	{"client", least(func(m *MemberStats) string { return m.Client })},
	{"group", least(func(m *MemberStats) string { return m.Group })},
	{"share", most(func(m *MemberStats) float64 { return m.Share })},
	{"out", most(func(m *MemberStats) float64 { return m.Out.Second })},
	{"ack", most(func(m *MemberStats) int64 { return m.LastAck.UnixNano() })},
}

var evictionSortings = []sorting[EvictionStats]{
	{"time", most(func(e *EvictionStats) int64 { return e.Time.UnixNano() })},
	{"subscription", least(func(e *EvictionStats) string { return e.ID })},
	{"client", least(func(e *EvictionStats) string { return e.Client })},
	{"reason", least(func(e *EvictionStats) string { return e.Reason })},
	{"lost", most(func(e *EvictionStats) uint64 { return e.Lost })},
	{"lived", most(func(e *EvictionStats) int64 { return int64(e.Lived) })},
}

// SortColumns lists the names that Query.Sort takes for a view, the default first; nil: the view has no one order.
func SortColumns(v View) []string {
	switch v {
	case ViewTopics:
		return columns(topicSortings)
	case ViewSubscriptions:
		return columns(subscriptionSortings)
	case ViewGroups:
		return columns(groupSortings)
	case ViewMembers:
		return columns(memberSortings)
	case ViewEvictions:
		return columns(evictionSortings)
	}
	return nil
}

func columns[T any](sortings []sorting[T]) []string {
	names := make([]string, len(sortings))
	for i := range sortings {
		names[i] = sortings[i].column
	}
	return names
}

// Validate reports a query that cannot be answered; the error wraps ErrProtocol.
func (q *Query) Validate() error {
	switch {
	case q.View < ViewTotals || q.View > ViewAll:
		return fmt.Errorf("%w: unknown view %d", ErrProtocol, int(q.View))
	case q.Limit < 0:
		return fmt.Errorf("%w: limit %d is negative", ErrProtocol, q.Limit)
	case q.Sort != "" && !slices.Contains(SortColumns(q.View), q.Sort):
		return fmt.Errorf("%w: no column %s to sort by", ErrProtocol, quoteShort(q.Sort))
	}
	return nil
}
