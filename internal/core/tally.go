package core

// Count is a counter with the reason it is kept for.
type Count struct {
	Reason string
	N      uint64
}

// Tally is all that the broker counts, divided finely, for those who keep series of it. Counters never fall. When nothing is under way
// the books balance:
//
//	Matched              = DeliveredBroadcast + what Dropped has beyond the groups' + what subscriptions have queued
//	GroupTotals.Accepted = Acked + DeadLetters + Dropped + Pending and InFlight of all groups
//	Opened               = the sum of Ended + the subscriptions there are
type Tally struct {
	// Matched is for how many broadcast subscriptions messages were meant, summed over all messages.
	Matched            uint64
	DeliveredBroadcast uint64
	DeliveredGroup     uint64 // redeliveries included
	// Dropped, Refused, Ended and Evictions have an element for every reason there is.
	Dropped   []Count
	Refused   []Count
	Ended     []Count // subscriptions and members
	Evictions []Count
	Opened    uint64
	Latency   LatencyStats

	// Groups are the groups there are, in no particular order; GroupTotals counts for them and all that have gone.
	Groups      []GroupStats
	GroupTotals GroupTotals
}

// GroupTotals are what groups count. The names are those of GroupStats.
type GroupTotals struct {
	Accepted, Delivered, Acked, DeadLetters, Dropped, Redelivered, Expired uint64
}

// Tally returns what the broker has counted. Its cost grows with the number of groups.
func (b *Broker) Tally() Tally {
	// Groups come first: what they have dropped is among the broker's drops by then.
	groups, totals := b.groupBooks()
	c := &b.counters
	t := Tally{
		Groups:             groups,
		GroupTotals:        totals,
		DeliveredBroadcast: c.delivered.Load(),
		DeliveredGroup:     c.deliveredGroup.Load(),
		Opened:             c.opened.Load(),
		Latency:            b.latency.stats(),
	}
	for r := range evictReasons {
		t.Evictions = append(t.Evictions, Count{r.String(), c.evicted[r].Load()})
	}
	for r := range dropReasons {
		t.Dropped = append(t.Dropped, Count{r.String(), c.dropped[r].Load()})
	}
	for r := range refuseReasons {
		t.Refused = append(t.Refused, Count{r.String(), c.refused[r].Load()})
	}
	for r := EndClosed; int(r) < len(endWords); r++ {
		t.Ended = append(t.Ended, Count{r.word(), c.ended[r].Load()})
	}
	t.Matched = c.matched.Load()
	return t
}

// groupBooks describes all groups and sums up, for those that have gone as well. A group is counted once, whenever it goes.
func (b *Broker) groupBooks() ([]GroupStats, GroupTotals) {
	b.mu.Lock()
	sum := b.gone
	groups := b.allGroupsLocked()
	b.mu.Unlock()
	stats := make([]GroupStats, len(groups))
	for i, g := range groups {
		g.mu.Lock()
		stats[i] = g.statsLocked(nil)
		sum.add(&g.counters)
		g.mu.Unlock()
	}
	return stats, GroupTotals{
		Accepted:    sum.accepted,
		Delivered:   sum.delivered,
		Acked:       sum.acked,
		DeadLetters: sum.dead,
		Dropped:     sum.dropped,
		Redelivered: sum.redelivered,
		Expired:     sum.expired,
	}
}
