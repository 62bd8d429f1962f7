package core

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzPattern(f *testing.F) {
	for _, c := range truths {
		f.Add(c.pattern, strings.Join(strings.Fields(c.matches+" x"), "."))
	}
	for _, pattern := range hostile {
		f.Add(pattern, strings.Repeat("a.a", 20))
	}
	for _, pattern := range []string{"[", "{a{*.x{", `a.\`, "[z-a]", "a**b", "\xff", "!a.*", "[!]a]", "{,}", "[--a]", "{[,]}"} {
		f.Add(pattern, "a.b")
	}
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		p, err := ParsePattern(pattern)
		checkErrorText(t, err)
		if err != nil {
			if !errors.Is(err, ErrPatternInvalid) {
				t.Errorf("%q: %v is no pattern error", pattern, err)
			}
			return
		}
		if p.String() != pattern || p.exclusion != strings.HasPrefix(pattern, "!") {
			t.Errorf("%q became %q, exclusion %v", pattern, p, p.exclusion)
		}
		got := p.Match(topic) // whatever bytes it has
		if len(topic) > MaxTopicBytes || !utf8.ValidString(topic) {
			return
		}
		want, err := slowMatch(pattern, topic)
		if err != nil {
			t.Fatalf("%q was taken, but: %v", pattern, err)
		}
		if got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, topic, got, want)
		}
		checkInIndex(t, p, topic, want)
	})
}

// checkInIndex looks the topic up in an index with the pattern, taken as no exclusion, and some others.
func checkInIndex(t *testing.T, p *Pattern, topic string, want bool) {
	t.Helper()
	var ix index[int]
	others := mustParse(t, "a.*", "*a*b", "**.a.**", "[a-c]?*", "a")
	ix.add(others, 1)
	set, err := ParsePatterns([]string{strings.TrimPrefix(p.String(), "!")})
	if err != nil {
		t.Fatal(err)
	}
	ix.add(set, 2)
	found := 0
	for _, v := range ix.match(topic, nil) {
		if v == 2 {
			found++
		}
	}
	if found > 1 || (found == 1) != want {
		t.Errorf("the index finds %q for %q %d times, want %v", p, topic, found, want)
	}
	ix.remove(others, 1)
	ix.remove(set, 2)
	checkIndexEmpty(t, &ix)
}
