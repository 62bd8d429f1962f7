package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// indexModel is an index beside a list of what is in it.
type indexModel struct {
	ix   index[int]
	live []modelValue
	last int
}

type modelValue struct {
	value    int
	set      *PatternSet
	patterns []string
}

func (m *indexModel) add(set *PatternSet, patterns []string) {
	m.last++
	m.ix.add(set, m.last)
	m.live = append(m.live, modelValue{m.last, set, patterns})
}

func (m *indexModel) removeAt(i int) {
	m.ix.remove(m.live[i].set, m.live[i].value)
	m.live = slices.Delete(m.live, i, i+1)
}

// check compares a lookup with the slow matcher, value by value.
func (m *indexModel) check(t *testing.T, topic string) {
	t.Helper()
	var want []int
	for _, v := range m.live {
		if slowSetMatch(t, v.patterns, topic) {
			want = append(want, v.value)
		}
		if got := v.set.Match(topic); got != slices.Contains(want, v.value) {
			t.Fatalf("set %q matches %q: %v, want %v", v.patterns, topic, got, !got)
		}
	}
	got := m.ix.match(topic, nil)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		for _, v := range m.live {
			if slices.Contains(got, v.value) != slices.Contains(want, v.value) {
				t.Errorf("value %d with patterns %q is wrong", v.value, v.patterns)
			}
		}
		t.Fatalf("topic %q: got %v, want %v", topic, got, want)
	}
}

func slowSetMatch(t *testing.T, patterns []string, topic string) bool {
	t.Helper()
	included := false
	for _, p := range patterns {
		exclusion := strings.HasPrefix(p, "!")
		ok, err := slowMatch(p, topic)
		if err != nil {
			t.Fatalf("pattern %q was taken, but %v", p, err)
		}
		if ok && exclusion {
			return false
		}
		included = included || ok
	}
	return included
}

// randomSet returns legal patterns, parsed and as they are.
func randomSet(r *rand.Rand) (*PatternSet, []string) {
	for {
		patterns := make([]string, 1+r.IntN(4))
		for i := range patterns {
			patterns[i] = randomPattern(r)
			if i > 0 && r.IntN(4) == 0 {
				patterns[i] = "!" + patterns[i]
			}
		}
		if set, err := ParsePatterns(patterns); err == nil {
			return set, patterns
		}
	}
}

func TestIndexAgreesWithModel(t *testing.T) {
	for _, size := range []int{1, 4, 40, 400} {
		t.Run(fmt.Sprintf("up to %d values", size), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(size), 3))
			var m indexModel
			for range 10_000 {
				switch n := r.IntN(10); {
				case n < 2 && len(m.live) < size:
					m.add(randomSet(r))
				case n < 4 && len(m.live) > 0:
					m.removeAt(r.IntN(len(m.live)))
				case n == 4 || size < 100:
					m.check(t, randomTopic(r))
				}
			}
			for len(m.live) > 0 {
				m.removeAt(r.IntN(len(m.live)))
			}
			checkIndexEmpty(t, &m.ix)
		})
	}
}

// checkIndexEmpty fails unless the index is as small as a new one.
func checkIndexEmpty(t *testing.T, ix *index[int]) {
	t.Helper()
	if !ix.values.empty() || !ix.literals.empty() {
		t.Error("values or literals left")
	}
	for _, root := range []*indexNode[int]{&ix.public, &ix.own} {
		if !root.empty() {
			t.Errorf("%d nodes left", countNodes(root))
		}
	}
	if len(ix.ids.owners)+len(ix.starIDs.owners) > 0 {
		t.Error("numbers left")
	}
}

// countNodes counts the nodes of segments and globs, n included.
func countNodes(n *indexNode[int]) int {
	if n == nil {
		return 0
	}
	count := 1 + countNodes(n.any) + countNodes(n.doubleStar) + countGlobs(n.globs)
	for _, p := range n.literals.few {
		count += countNodes(p.value)
	}
	for _, child := range n.literals.many {
		count += countNodes(child)
	}
	return count
}

func countGlobs(n *globNode[indexNode[int]]) int {
	if n == nil {
		return 0
	}
	count := 1 + countGlobs(n.any) + countGlobs(n.star) + countNodes(n.leaf)
	for _, e := range n.literals {
		count += countGlobs(e.node)
	}
	for _, child := range n.classes {
		count += countGlobs(child)
	}
	return count
}
