package core

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Many globs of few letters at one node share most of their beginnings, which an index of mixed patterns seldom does.
func TestGlobTrieAgreesWithGlobs(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for range 300 {
		var root globNode[string]
		var stars indexIDs
		live := make(map[string]glob)
		for range 60 {
			raw := randomDenseGlob(r)
			g, wildcards, err := parseGlob(raw)
			if err != nil || wildcards == 0 {
				continue
			}
			if root.find(g) == nil {
				root.add(&stars, g, &raw)
				live[raw] = g
			}
			if r.IntN(3) == 0 {
				for raw, g := range live { // any one
					root.remove(&stars, g, nil)
					delete(live, raw)
					break
				}
			}
			checkGlobTrie(t, &root, &stars, live, randomDenseSegment(r))
		}
		for raw, g := range live {
			if leaf := root.find(g); leaf == nil || *leaf != raw {
				t.Fatalf("%q leads to %v", raw, leaf)
			}
			root.remove(&stars, g, nil)
		}
		if !root.empty() || len(stars.owners) > 0 {
			t.Fatal("the trie is not empty")
		}
	}
}

func checkGlobTrie(t *testing.T, root *globNode[string], stars *indexIDs, live map[string]glob, segment string) {
	t.Helper()
	var got, want []string
	var s globScratch[string]
	s.match(root, segment, stars)
	for _, leaf := range s.leaves {
		got = append(got, *leaf)
	}
	for raw := range live {
		tokens, err := slowTokens([]rune(raw))
		if err != nil {
			t.Fatal(err)
		}
		if slowGlob(tokens, []rune(segment)) {
			want = append(want, raw)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("%q: got %q, want %q", segment, got, want)
	}
}

func randomDenseGlob(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(7) {
		b.WriteString(pick(r, "a", "a", "b", "ab", "é", "*", "*", "?", "[ab]", "[!a]", "[é😀]"))
	}
	return b.String()
}

func randomDenseSegment(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(12) {
		b.WriteString(pick(r, "a", "a", "b", "é", "😀"))
	}
	return b.String()
}

func TestGlobsThatMeanTheSameAreTheSame(t *testing.T) {
	for _, same := range [][2]string{{"*?", "?*"}, {"a*?*b", "a?*b"}, {"?*?*?", "???*"}, {`\a*`, "a*"}, {"[ba]*", "[ab]*"}} {
		var root globNode[int]
		var stars indexIDs
		g, _, err := parseGlob(same[0])
		if err != nil {
			t.Fatal(err)
		}
		root.add(&stars, g, new(int))
		if g, _, _ = parseGlob(same[1]); root.find(g) == nil {
			t.Errorf("%s and %s differ", same[0], same[1])
		}
	}
}

// A star is given up as soon as nothing new can come of it, and looks at its ends only where they can be.
func TestIndexGivesUpEarly(t *testing.T) {
	long := strings.Repeat("a", 500)
	wide := func(i int) string { return string(rune(0x4e00 + i)) }
	for _, c := range []struct {
		name    string
		pattern func(i int) string
		topic   string
		most    int
	}{
		{"ends", func(i int) string { return "*-" + wide(i) + "a" }, long, 10},
		{"ends behind classes", func(i int) string { return "*[a" + wide(i) + "]b" }, long, 500},
		{"the same way twice", func(i int) string { return "*a*a*a*a" + wide(i) }, long, 30},
		{"a rare literal", func(i int) string { return "*x" + wide(i) + "*" }, long, 5},
		{"a literal far away", func(i int) string { return "*x" + wide(i) + "*" }, long + "x", 5},
		{"a long literal", func(i int) string { return "*[ab]" + long[:200] + wide(i) + "*" }, long, 2000},
		{"segments at the end", func(i int) string { return "**.a." + wide(i) }, strings.Repeat("a.", 31) + "a", 10},
		{"segments in the middle", func(i int) string { return "**.a.**.a.**.a." + wide(i) }, strings.Repeat("a.", 31) + "a", 20},
		{"segments after others", func(i int) string { return "a.a.a.a.a.a.**." + wide(i) }, strings.Repeat("a.", 31) + "a", 12},
	} {
		var ix index[int]
		for i := range 100 {
			ix.add(mustParse(t, c.pattern(i)), i)
		}
		if steps := indexSteps(&ix, c.topic); steps > c.most {
			t.Errorf("%s: %d steps, at most %d are needed", c.name, steps, c.most)
		}
	}
}

func TestMatcherSkipsToLiterals(t *testing.T) {
	for pattern, most := range map[string]int{"*c": 3, "*a*a*c": 12, "*ac": 3, "*c*": 3, "*b*c": 6} {
		if steps := stepsOf(t, pattern, strings.Repeat("a", 500)+"b"); steps > most {
			t.Errorf("%q: %d steps", pattern, steps)
		}
	}
}
