package metrics

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// ledger stands for the broker's groups: those that are there and what those that have gone have counted.
type ledger struct {
	groups map[string]*core.GroupStats
	gone   core.GroupTotals
	clock  time.Time
}

func newLedger() *ledger {
	return &ledger{groups: make(map[string]*core.GroupStats), clock: time.Unix(1_000_000, 0)}
}

func (l *ledger) create(name string) {
	l.clock = l.clock.Add(time.Second)
	l.groups[name] = &core.GroupStats{Name: name, Created: l.clock, Members: 1}
}

func (l *ledger) count(name string, n uint64) {
	g := l.groups[name]
	g.Accepted += n
	g.Acked += n / 2
	g.Dropped += n / 3
	g.DeadLetters += n / 4
	g.Redelivered += n * 2
	g.Pending = int(n)
}

func (l *ledger) expire(name string) {
	g := l.groups[name]
	delete(l.groups, name)
	l.gone.Accepted += g.Accepted
	l.gone.Acked += g.Acked
	l.gone.Dropped += g.Dropped
	l.gone.DeadLetters += g.DeadLetters
	l.gone.Redelivered += g.Redelivered
}

func (l *ledger) books() ([]core.GroupStats, core.GroupTotals) {
	total := l.gone
	var groups []core.GroupStats
	for _, g := range l.groups {
		groups = append(groups, *g)
		total.Accepted += g.Accepted
		total.Acked += g.Acked
		total.Dropped += g.Dropped
		total.DeadLetters += g.DeadLetters
		total.Redelivered += g.Redelivered
	}
	return groups, total
}

// page is one scrape.
type page struct {
	counts map[string]groupCounts
	gauges map[string]groupGauges
	lives  map[string]time.Time // since when the groups there are exist; the zero time for what is no group
}

func fell(was, is groupCounts) bool {
	return is.matched < was.matched || is.acked < was.acked || is.deadLetters < was.deadLetters || is.dropped < was.dropped || is.redelivered < was.redelivered
}

func (n *groupNames) page(t testing.TB, l *ledger) page {
	t.Helper()
	groups, total := l.books()
	n.update(groups, total)
	p := page{map[string]groupCounts{}, map[string]groupGauges{}, map[string]time.Time{}}
	for name, g := range l.groups {
		p.lives[name] = g.Created
	}
	n.visit(func(name string, c groupCounts) {
		if _, twice := p.counts[name]; twice {
			t.Errorf("%q twice", name)
		}
		p.counts[name] = c
	}, func(name string, g groupGauges) {
		if _, twice := p.gauges[name]; twice {
			t.Errorf("%q twice", name)
		}
		p.gauges[name] = g
	})
	var sum groupCounts
	var gauges groupGauges
	for _, c := range p.counts {
		sum = sum.plus(c)
	}
	for _, g := range p.gauges {
		gauges = gauges.plus(g)
	}
	if want := (groupCounts{total.Accepted, total.Acked, total.DeadLetters, total.Dropped, total.Redelivered}); sum != want {
		t.Errorf("the groups add up to %+v, want %+v", sum, want)
	}
	if gauges.members != len(l.groups) {
		t.Errorf("%d members are shown of %d", gauges.members, len(l.groups))
	}
	if len(p.counts) > maxNamed+2 || len(p.gauges) > maxNamed+1 {
		t.Errorf("%d and %d names", len(p.counts), len(p.gauges))
	}
	return p
}

func TestTheOldestGroupsAreNamed(t *testing.T) {
	l, n := newLedger(), newGroupNames()
	for i := range maxNamed + 5 {
		l.create(fmt.Sprint("g", i))
		l.count(fmt.Sprint("g", i), 12)
	}
	p := n.page(t, l)
	if p.counts["g0"].matched != 12 || p.counts[fmt.Sprint("g", maxNamed-1)].redelivered != 24 || p.counts[otherGroups].matched != 5*12 || p.gauges[otherGroups].pending != 5*12 {
		t.Errorf("%+v", p)
	}
	if _, named := p.counts[fmt.Sprint("g", maxNamed)]; named {
		t.Error("one too many is named")
	}

	// One goes: the one that has waited longest for a name gets it, and begins at nothing.
	l.count("g0", 12)
	l.expire("g0")
	heir := fmt.Sprint("g", maxNamed)
	p = n.page(t, l)
	if got, named := p.counts[heir]; !named || got != (groupCounts{}) || p.gauges[heir].pending != 12 {
		t.Errorf("%s: %+v, %v", heir, got, named)
	}
	// What g0 counted after it was last seen is in _other; what it showed is in _gone.
	if p.counts[goneGroups].matched != 12 || p.counts[otherGroups].matched != 5*12+12 {
		t.Errorf("gone %+v, other %+v", p.counts[goneGroups], p.counts[otherGroups])
	}
	l.count(heir, 4)
	if p = n.page(t, l); p.counts[heir].matched != 4 || p.counts[otherGroups].matched != 5*12+12 {
		t.Errorf("%+v", p)
	}
}

func TestAGroupIsShownWithAllItCounted(t *testing.T) {
	l, n := newLedger(), newGroupNames()
	n.page(t, l)
	l.create("new") // and at work before anybody looks
	l.count("new", 12)
	if p := n.page(t, l); p.counts["new"].matched != 12 || p.counts[otherGroups].matched != 0 {
		t.Errorf("%+v", p)
	}
	l.create("short") // comes and goes between two looks
	l.count("short", 8)
	l.expire("short")
	if p := n.page(t, l); p.counts[otherGroups].matched != 8 {
		t.Errorf("%+v", p)
	}
	l.expire("new")
	l.create("new") // comes back between two looks
	l.count("new", 1)
	if p := n.page(t, l); p.counts["new"].matched != 1 || p.counts[goneGroups].matched != 12 {
		t.Errorf("%+v", p)
	}
}

// A group cannot pass for what is no group.
func TestGroupsOfReservedNames(t *testing.T) {
	l, n := newLedger(), newGroupNames()
	for _, name := range []string{otherGroups, goneGroups} {
		l.create(name)
		l.count(name, 12)
	}
	if p := n.page(t, l); len(p.counts) != 2 || p.counts[otherGroups].matched != 24 || p.counts[goneGroups].matched != 0 {
		t.Errorf("%+v", p)
	}
}

// Whatever groups do, no counter falls while its group lives, _other grows by no more than the groups without a name
// have counted, and the sum is exact. Afterwards nothing is left.
func TestGroupNamesUnderChurn(t *testing.T) {
	l, n := newLedger(), newGroupNames()
	before := n.page(t, l)
	for range 3000 {
		unseen := uint64(0) // what may show in _other
		for range rand.IntN(20) {
			name := fmt.Sprint("g", rand.IntN(3*maxNamed))
			switch g := l.groups[name]; {
			case g == nil:
				l.create(name)
			case rand.IntN(3) == 0:
				l.expire(name)
			default:
				l.count(name, 12)
				unseen += 12
			}
		}
		after := n.page(t, l)
		for name, was := range before.counts {
			is, there := after.counts[name]
			sameLife := before.lives[name].Equal(after.lives[name])
			if sameLife && !there {
				t.Fatalf("%s has lost its name", name)
			}
			if sameLife && fell(was, is) {
				t.Fatalf("%s fell from %+v to %+v", name, was, is)
			}
		}
		if step := after.counts[otherGroups].matched - before.counts[otherGroups].matched; step > unseen {
			t.Fatalf("_other grew by %d, and only %d were counted", step, unseen)
		}
		before = after
	}
	for name := range l.groups {
		l.expire(name)
	}
	if p := n.page(t, l); len(p.counts) != 2 || len(p.gauges) != 1 || p.gauges[otherGroups] != (groupGauges{}) || len(n.named) != 0 || len(n.known) != 0 {
		t.Errorf("left: %+v", p)
	}
}
