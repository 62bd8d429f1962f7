package core

import (
	"strings"
	"testing"
)

// hostile patterns make a naive matcher try exponentially many ways on topics of many a.
var hostile = []string{
	"*a*a*a*a*b",
	"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b",
	"*?*?*?*?*?*?*b",
	"*[ab]*[!b]*[a-c]*[ac]*b",
	"*a?a?a?a?b",
	"*aaaaaaaaaaaaaaaab*",
	"{*a,*?,*[a]}{*a,*?,*[a]}{*a,*?,*[a]}b",
	"**.a.**.a.**.b",
	"**.a.**.a.**.a.**.a.**.a.**.a.**.a.**.b",
	"**.*.**.*.**.*.**.b",
	"**.*a*a*b.**.*a*a*b",
	"**.a.a.a.a.a.a.a.a.b.**",
}

// stepsOf counts the steps of all alternatives.
func stepsOf(t *testing.T, pattern, topic string) int {
	t.Helper()
	p, err := ParsePattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for i := range p.alternatives {
		ok, n := p.alternatives[i].match(topic)
		if ok {
			t.Fatalf("%q matches %.20q…", pattern, topic)
		}
		steps += n
	}
	return steps
}

func TestHostilePatternsCostLinearTime(t *testing.T) {
	for _, unit := range []string{"a", "a.", "aaaa.", "aaaaaaaaaaaaaaaa."} {
		topic := func(bytes int) string { return strings.Repeat(unit, bytes/len(unit)) + "a" }
		for _, pattern := range hostile {
			// Long topics, longer than a legal one, show the growth best.
			short, long := stepsOf(t, pattern, topic(1<<10)), stepsOf(t, pattern, topic(1<<13))
			if long > 9*short {
				t.Errorf("%q on %q…: %d steps, on 8 times as much %d", pattern, unit, short, long)
			}
			if bound := 4 * len(pattern) * MaxTopicBytes; stepsOf(t, pattern, topic(MaxTopicBytes-1)) > bound {
				t.Errorf("%q on %q…: more than %d steps", pattern, unit, bound)
			}
		}
	}
}

func TestHostilePatternsCostLinearTimeInTheIndex(t *testing.T) {
	var ix index[int]
	for i, pattern := range hostile {
		ix.add(mustParse(t, pattern), i)
	}
	for _, unit := range []string{"a", "a.", "aaaa.", "aaaaaaaaaaaaaaaa."} {
		steps := func(bytes int) int {
			return indexSteps(&ix, strings.Repeat(unit, bytes/len(unit))+"a")
		}
		if short, long := steps(1<<10), steps(1<<13); long > 9*short {
			t.Errorf("%q…: %d steps, on 8 times as much %d", unit, short, long)
		}
	}
}

// indexSteps returns how many nodes a lookup looks at.
func indexSteps(ix *index[int], topic string) int {
	s := indexScratch[int]{ix: ix}
	s.match(topic, nil)
	return s.steps + s.globs.steps
}

func mustParse(t testing.TB, patterns ...string) *PatternSet {
	t.Helper()
	set, err := ParsePatterns(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestClassesThatMeanTheSameAreTheSame(t *testing.T) {
	class := func(raw string) *globClass {
		t.Helper()
		c, _, err := parseClass(raw)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, same := range [][2]string{
		{"[abc]", "[a-c]"}, {"[cba]", "[a-c]"}, {"[a-cb-d]", "[a-d]"}, {"[a-be-fc-d]", "[a-f]"}, {"[!ab]", "[^ba]"}, {"[a-zb]", "[a-z]"},
	} {
		if a, b := class(same[0]), class(same[1]); a.key != b.key {
			t.Errorf("%s and %s differ", same[0], same[1])
		}
	}
	for _, other := range [][2]string{{"[ab]", "[!ab]"}, {"[ab]", "[abc]"}, {"[a-c]", "[ac]"}} {
		if a, b := class(other[0]), class(other[1]); a.key == b.key {
			t.Errorf("%s and %s are the same", other[0], other[1])
		}
	}
}
