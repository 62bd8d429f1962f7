package core

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestPatternAgreesWithSlowMatcher(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	refused, matched := 0, 0
	const pairs = 300_000
	for range pairs {
		pattern, topic := randomPattern(r), randomTopic(r)
		want, slowErr := slowMatch(pattern, topic)
		p, err := ParsePattern(pattern)
		if err != nil && strings.Contains(err.Error(), "the most is") {
			continue
		}
		if (err != nil) != (slowErr != nil) {
			t.Fatalf("pattern %q: %v, want %v", pattern, err, slowErr)
		}
		if err != nil {
			refused++
			continue
		}
		if got := p.Match(topic); got != want {
			t.Fatalf("%q matches %q: %v, want %v", pattern, topic, got, want)
		}
		if want {
			matched++
		}
	}
	if refused > pairs/3 || matched < pairs/20 {
		t.Errorf("poor sample: %d refused, %d matched", refused, matched)
	}
	t.Logf("%d refused, %d matched", refused, matched)
}
