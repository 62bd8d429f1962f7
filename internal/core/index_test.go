package core

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestIndexFindsEachValueOnce(t *testing.T) {
	var ix index[string]
	ix.add(mustParse(t, "orders.*", "orders.**", "orders.eu", "**", "orders.eu", "{orders,orders}.e{u,u}", "[o]rders.*", "**.eu", "*.eu", "*.*u"), "many")
	ix.add(mustParse(t, "orders.**"), "one")
	check := func(topic string, want ...string) {
		t.Helper()
		got := ix.match(topic, nil)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", topic, got, want)
		}
	}
	check("orders.eu", "many", "one")
	check("orders", "many", "one")
	check("x", "many")
	check("$tb.event")
	got := ix.match("orders.eu", []string{"before"})
	if len(got) != 3 || got[0] != "before" {
		t.Errorf("match does not append: %q", got)
	}
}

func TestCatchAllDoesNotDependOnLength(t *testing.T) {
	var ix index[string]
	for _, pattern := range []string{"**", "*", "a.**", "*a", "a*", "**.*a", "?.**"} {
		ix.add(mustParse(t, pattern), pattern)
	}
	check := func(topic string, want ...string) {
		t.Helper()
		got := ix.match(topic, nil)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%d bytes, %.20q…: got %q, want %q", len(topic), topic, got, want)
		}
	}
	for n := 3; n <= MaxTopicBytes; n++ {
		check(strings.Repeat("a", n), "**", "*", "*a", "a*", "**.*a")
		wide := strings.Repeat("漢", n/3) + strings.Repeat("x", n%3) + "a"
		check(wide, "**", "*", "*a", "**.*a")
		check("a."+wide, "**", "a.**", "**.*a", "?.**")
	}
	for n := 2; n <= MaxTopicSegments; n++ {
		check(strings.Repeat("a.", n-1)+"é", "**", "a.**", "?.**")
	}
}

func TestIndexKeepsValuesWithEqualPatternsApart(t *testing.T) {
	var ix index[int]
	set := mustParse(t, "a.*", "a.b", "[ab].*", "[ba].*")
	for v := range 5 {
		ix.add(set, v)
	}
	ix.remove(set, 2)
	ix.remove(set, 9) // never added
	got := ix.match("a.b", nil)
	slices.Sort(got)
	if !slices.Equal(got, []int{0, 1, 3, 4}) {
		t.Errorf("got %v", got)
	}
	for _, v := range []int{4, 0, 1, 3} {
		ix.remove(set, v)
	}
	checkIndexEmpty(t, &ix)
}

func TestIndexExcludes(t *testing.T) {
	var ix index[int]
	ix.add(mustParse(t, "**", "!*.debug", "!x.**"), 1)
	ix.add(mustParse(t, "**"), 2)
	ix.add(mustParse(t, "$tb.**", "!**"), 3)
	for topic, want := range map[string][]int{
		"web": {1, 2}, "web.debug": {2}, "web.debug.sql": {1, 2}, "x": {2}, "x.y": {2}, "$tb.event": {3},
	} {
		got := ix.match(topic, nil)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", topic, got, want)
		}
	}
}

// Whatever comes and goes in between, the nodes are those of a new index with the same patterns.
func TestIndexPrunes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		var m indexModel
		for range 30 {
			m.add(randomSet(r))
		}
		for len(m.live) > 3 {
			m.removeAt(r.IntN(len(m.live)))
		}
		var fresh index[int]
		for _, v := range m.live {
			fresh.add(v.set, v.value)
		}
		if got, want := countNodes(&m.ix.public)+countNodes(&m.ix.own), countNodes(&fresh.public)+countNodes(&fresh.own); got != want {
			t.Fatalf("%d nodes, a new index has %d", got, want)
		}
		if len(m.ix.ids.owners) != len(fresh.ids.owners) || len(m.ix.starIDs.owners) != len(fresh.starIDs.owners) {
			t.Fatal("numbers are left over")
		}
		checkGaps(t, &m.ix.public)
		checkGaps(t, &m.ix.own)
		for len(m.live) > 0 {
			m.removeAt(0)
		}
		checkIndexEmpty(t, &m.ix)
	}
}

// checkGaps counts again what the gaps at and below n have counted.
func checkGaps(t *testing.T, n *indexNode[int]) {
	t.Helper()
	if next, ends := countBehind(n); n.gap.id != 0 && (int(n.gap.next) != next || int(n.gap.ends) != ends) {
		t.Errorf("a ** counts %d and %d, there are %d and %d", n.gap.next, n.gap.ends, next, ends)
	}
	checkGlobGaps(t, n.globs)
	for _, child := range childrenOf(n) {
		checkGaps(t, child)
	}
	if n.doubleStar != nil {
		checkGaps(t, n.doubleStar)
	}
}

func countBehind(n *indexNode[int]) (next, ends int) {
	if n.doubleStar != nil {
		next = 1
	}
	for _, child := range childrenOf(n) {
		moreNext, moreEnds := countBehind(child)
		next, ends = next+moreNext, ends+len(child.here.items)+moreEnds
	}
	return next, ends
}

func checkGlobGaps(t *testing.T, n *globNode[indexNode[int]]) {
	t.Helper()
	if n == nil {
		return
	}
	if next, ends := countGlobsBehind(n); n.gap.id != 0 && (int(n.gap.next) != next || int(n.gap.ends) != ends) {
		t.Errorf("a star counts %d and %d, there are %d and %d", n.gap.next, n.gap.ends, next, ends)
	}
	for _, child := range append(globChildrenOf(n), n.star) {
		checkGlobGaps(t, child)
	}
}

func countGlobsBehind(n *globNode[indexNode[int]]) (next, ends int) {
	if n.star != nil {
		next = 1
	}
	for _, child := range globChildrenOf(n) {
		moreNext, moreEnds := countGlobsBehind(child)
		next, ends = next+moreNext, ends+moreEnds
		if child.leaf != nil {
			ends++
		}
	}
	return next, ends
}

func childrenOf(n *indexNode[int]) []*indexNode[int] {
	var all []*indexNode[int]
	for _, p := range n.literals.few {
		all = append(all, p.value)
	}
	for _, child := range n.literals.many {
		all = append(all, child)
	}
	if n.any != nil {
		all = append(all, n.any)
	}
	return append(all, leavesOf(n.globs)...)
}

func leavesOf(n *globNode[indexNode[int]]) []*indexNode[int] {
	if n == nil {
		return nil
	}
	var all []*indexNode[int]
	if n.leaf != nil {
		all = append(all, n.leaf)
	}
	for _, child := range append(globChildrenOf(n), n.star) {
		all = append(all, leavesOf(child)...)
	}
	return all
}

// globChildrenOf returns the children of n but for the star.
func globChildrenOf(n *globNode[indexNode[int]]) []*globNode[indexNode[int]] {
	all := slices.Clone(n.classes)
	for _, e := range n.literals {
		all = append(all, e.node)
	}
	if n.any != nil {
		all = append(all, n.any)
	}
	return all
}

func TestIndexCostDoesNotGrowWithSubscriptions(t *testing.T) {
	var ix index[int]
	topics := []string{"tenant.7.orders.created", "metrics.eu.host-2.cpu", "devices.sensor-3-b.temp", "jobs.nightly-4.done", "none.of.them"}
	steps := make(map[string]int)
	for i := range 20_000 {
		ix.add(mixedSet(t, i), i)
		if i == 999 {
			for _, topic := range topics {
				steps[topic] = indexSteps(&ix, topic)
			}
		}
	}
	for _, topic := range topics {
		// Longer numbers make the tries somewhat deeper.
		if got, was := indexSteps(&ix, topic), steps[topic]; got > was+10 {
			t.Errorf("%q: %d steps among 1000 subscriptions, %d among 20000", topic, was, got)
		}
	}
}

func TestIndexMatchAllocatesNothing(t *testing.T) {
	var ix index[int]
	for i := range 1000 {
		ix.add(mixedSet(t, i), i)
	}
	ix.add(mustParse(t, "**.*", "{a,b}*", "**", "!x"), 1000)
	found := make([]int, 0, 16)
	s := indexScratch[int]{ix: &ix} // not from the pool, which may lose it at any time
	run := func() {
		for _, topic := range []string{"tenant.1.x", "jobs.nightly-4.done", "devices.sensor-3-b.temp", "x"} {
			found = s.match(topic, found[:0])
		}
	}
	if n := testing.AllocsPerRun(100, run); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestIndexMatchesConcurrently(t *testing.T) {
	var ix index[int]
	for i := range 200 {
		ix.add(mixedSet(t, i), i)
	}
	ix.add(mustParse(t, "jobs.*", "jobs.**", "**.done", "!jobs.*-7.*"), 1000)
	var mu sync.RWMutex
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 2000 {
				i := 10*r.IntN(20) + 4
				mu.RLock()
				got := ix.match(fmt.Sprintf("jobs.nightly-%d.done", i), nil)
				mu.RUnlock()
				slices.Sort(got)
				if want := []int{i, 1000}; !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 500 {
			set := mixedSet(t, 1001+i)
			mu.Lock()
			ix.add(set, 1001+i)
			mu.Unlock()
			mu.Lock()
			ix.remove(set, 1001+i)
			mu.Unlock()
		}
	})
	wg.Wait()
}

func TestIndexLeavesNothingBehindAfterAMillionSteps(t *testing.T) {
	n := 500_000 // each is added and removed
	if testing.Short() {
		n = 50_000
	}
	r := rand.New(rand.NewPCG(7, 7))
	sets := make([]*PatternSet, 20_000)
	for i := range sets {
		if sets[i], _ = randomSet(r); i%4 == 0 {
			sets[i] = mustParse(t, fmt.Sprintf("u.%x.*", r.Uint64()))
		}
	}
	var ix index[int]
	var live [200]int // values; 0: none
	for v := range n {
		slot := &live[r.IntN(len(live))]
		if *slot != 0 {
			ix.remove(sets[*slot%len(sets)], *slot)
		}
		*slot = v + 1
		ix.add(sets[*slot%len(sets)], *slot)
	}
	for _, v := range live {
		ix.remove(sets[v%len(sets)], v)
	}
	checkIndexEmpty(t, &ix)
}

func TestIndexGivesMemoryBack(t *testing.T) {
	const n = 100_000
	var ix index[int]
	stays := mustParse(t, "u.**", "devices.*", "a.b")
	ix.add(stays, -1)
	ix.match("u.x.y", nil)
	sets := make([]*PatternSet, n)
	before := heapInUse()
	for i := range sets {
		switch i % 3 {
		case 0:
			sets[i] = mustParse(t, fmt.Sprintf("u.%x.*", i))
		case 1:
			sets[i] = mustParse(t, fmt.Sprintf("devices.sensor-%x-*", i), fmt.Sprintf("u.*.%x", i))
		default:
			sets[i] = mustParse(t, fmt.Sprintf("u.%x", i))
		}
		ix.add(sets[i], i)
	}
	full := heapInUse()
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		ix.remove(sets[i], i)
		sets[i] = nil
	}
	after := heapInUse()
	if got := ix.match("u.x.y", nil); !slices.Equal(got, []int{-1}) {
		t.Errorf("got %v", got)
	}
	if int64(after)-int64(before) > 256<<10 {
		t.Errorf("%d bytes before, %d with %d subscriptions, %d after", before, full, n, after)
	}
	t.Logf("%d bytes a subscription", (full-before)/n)
	runtime.KeepAlive(sets)
	ix.remove(stays, -1)
	checkIndexEmpty(t, &ix)
}

// The estimate a subscription's patterns give must cover what they take.
func TestSizeCoversTheMemory(t *testing.T) {
	wide := func(i int) string { return string(rune(0x4e00 + i)) }
	for name, pattern := range map[string]func(i int) string{
		"one literal": func(int) string { return "a.b" },
		"literals":    func(i int) string { return fmt.Sprintf("topic.%d", i) },
		"long":        func(i int) string { return fmt.Sprintf("%d%s", i, strings.Repeat("a", 200)) },
		"segments":    func(i int) string { return wide(i) + strings.Repeat(".a", 30) + ".*" },
		"stars":       func(i int) string { return wide(i) + ".*.*.*.*" },
		"globs":       func(i int) string { return wide(i) + "*a.*" + wide(i) },
		"classes":     func(i int) string { return "[a" + wide(i) + "][!b" + wide(i) + "]*x" },
		"long class":  func(i int) string { return "[a" + wide(i) + strings.Repeat("bdfhjlnprtvxz", 15) + "]" },
		"ranges":      func(i int) string { return "[" + wide(i) + strings.Repeat("a-bd-eg-h", 10) + "]" },
		"gaps":        func(i int) string { return wide(i) + ".**.a.**.b.**" },
	} {
		patterns := make([]string, MaxSetPatterns)
		for i := range patterns {
			patterns[i] = pattern(i)
		}
		before := heapInUse()
		var ix index[int]
		set := mustParse(t, slices.Clone(patterns)...)
		ix.add(set, 1)
		taken := int(heapInUse()) - int(before)
		if size := set.Size(); taken > size || size > 20*taken+8192 {
			t.Errorf("%s: %d bytes, the estimate is %d", name, taken, size)
		}
		runtime.KeepAlive(patterns)
		runtime.KeepAlive(&ix)
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	// Twice, since what a pool holds survives the first.
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
