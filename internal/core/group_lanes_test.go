package core

import (
	"fmt"
	"testing"
	"time"
)

// TestAMemberWithPatternsOfItsOwnJoinsAtOnce: what a join costs, all joins of others waiting meanwhile, does not grow with the square of the
// members that have come and gone, whose lanes linger.
func TestAMemberWithPatternsOfItsOwnJoinsAtOnce(t *testing.T) {
	b := newBroker(t, nil)
	join(t, b, JoinOptions{Patterns: []string{"keep"}, MaxInFlight: 1})
	publish(t, b, post{"keep", "1", "k"}, post{"keep", "2", "k"}, post{"keep", "3", ""})
	lanes := 0
	comeAndGo := func(until int) (quickest time.Duration) {
		quickest = time.Hour
		for ; lanes < until; lanes++ {
			start := time.Now()
			m, err := b.Join(JoinOptions{Group: "g", Patterns: []string{fmt.Sprint("reply.", lanes)}})
			if err != nil {
				t.Fatal(err)
			}
			quickest = min(quickest, time.Since(start))
			m.Close()
		}
		return quickest
	}
	comeAndGo(40)
	few := comeAndGo(50)
	comeAndGo(990)
	if many := comeAndGo(1000); many > 50*few { // the square of 20 is 400
		t.Errorf("a join takes %v among 1000 lanes without members, %v among 50", many, few)
	}
}
