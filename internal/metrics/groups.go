package metrics

import (
	"cmp"
	"slices"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// maxNamed is how many groups have series of their own at once.
const maxNamed = 100

// What shows instead of a name. A group that is really called so is never named.
const (
	otherGroups = "_other" // groups for whose name there is no room
	goneGroups  = "_gone"  // what named groups that are no more had counted
)

// groupCounts are the counters of a group, or of several.
type groupCounts struct{ matched, acked, deadLetters, dropped, redelivered uint64 }

func (a groupCounts) plus(b groupCounts) groupCounts {
	return groupCounts{a.matched + b.matched, a.acked + b.acked, a.deadLetters + b.deadLetters, a.dropped + b.dropped, a.redelivered + b.redelivered}
}

func (a groupCounts) minus(b groupCounts) groupCounts {
	return groupCounts{a.matched - b.matched, a.acked - b.acked, a.deadLetters - b.deadLetters, a.dropped - b.dropped, a.redelivered - b.redelivered}
}

func countsOf(g *core.GroupStats) groupCounts {
	return groupCounts{matched: g.Accepted, acked: g.Acked, deadLetters: g.DeadLetters, dropped: g.Dropped, redelivered: g.Redelivered}
}

// groupGauges are what may fall.
type groupGauges struct{ pending, inFlight, members int }

func (a groupGauges) plus(b groupGauges) groupGauges {
	return groupGauges{a.pending + b.pending, a.inFlight + b.inFlight, a.members + b.members}
}

func gaugesOf(g *core.GroupStats) groupGauges {
	return groupGauges{pending: g.Pending, inFlight: g.InFlight, members: g.Members}
}

// groupLife is one life of a group: one that comes back under its old name begins to count anew.
type groupLife struct {
	name    string
	created time.Time
}

// groupNames decides which groups are shown by name, so that there are never more than maxNamed, and so that no counter ever falls, nor
// does its sum over all groups, which is exact:
//
//   - The groups that have existed for longest are named, and stay so for life.
//   - A named group shows what it has counted since it got its name. What it had counted before stays in _other.
//   - When it goes, what it showed moves to _gone in one step, and its own series end.
//   - _other is all the rest of the total. It therefore never moves by a step: its rate is a rate.
//
// Not safe for concurrent use.
type groupNames struct {
	named  map[groupLife]*namedGroup
	known  map[groupLife]bool // without a name at the last update
	gone   groupCounts
	other  groupCounts
	others groupGauges
}

type namedGroup struct {
	base, shown groupCounts // base: counted before it had a name
	gauges      groupGauges
}

func newGroupNames() groupNames { return groupNames{named: make(map[groupLife]*namedGroup)} }

// update takes over what the groups have counted. total is for all groups there are or ever were.
func (n *groupNames) update(groups []core.GroupStats, total core.GroupTotals) {
	slices.SortFunc(groups, func(a, b core.GroupStats) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	n.retire(groups)
	rest := groupCounts{total.Accepted, total.Acked, total.DeadLetters, total.Dropped, total.Redelivered}.minus(n.gone)
	known := make(map[groupLife]bool)
	n.others = groupGauges{}
	for i := range groups {
		g := &groups[i]
		life := groupLife{g.Name, g.Created}
		named := n.named[life]
		if named == nil && len(n.named) < maxNamed && g.Name != otherGroups && g.Name != goneGroups {
			named = &namedGroup{}
			if n.known[life] {
				named.base = countsOf(g)
			}
			n.named[life] = named
		}
		if named == nil {
			known[life] = true
			n.others = n.others.plus(gaugesOf(g))
			continue
		}
		named.shown, named.gauges = countsOf(g).minus(named.base), gaugesOf(g)
		rest = rest.minus(named.shown)
	}
	n.known, n.other = known, rest
}

// retire lets go of the named groups that are not there any more.
func (n *groupNames) retire(groups []core.GroupStats) {
	there := make(map[groupLife]bool, len(groups))
	for i := range groups {
		there[groupLife{groups[i].Name, groups[i].Created}] = true
	}
	for life, g := range n.named {
		if !there[life] {
			n.gone = n.gone.plus(g.shown)
			delete(n.named, life)
		}
	}
}

// visit shows what the last update has found.
func (n *groupNames) visit(counts func(name string, n groupCounts), gauges func(name string, n groupGauges)) {
	for life, g := range n.named {
		counts(life.name, g.shown)
		gauges(life.name, g.gauges)
	}
	counts(otherGroups, n.other)
	counts(goneGroups, n.gone)
	gauges(otherGroups, n.others)
}
