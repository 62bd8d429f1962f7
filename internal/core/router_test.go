package core

import (
	"fmt"
	"testing"
	"time"
)

// TestARouteOfManyGroups: finding the receivers of a topic, under its shard's lock, takes a time that does not grow with the square of the groups.
func TestARouteOfManyGroups(t *testing.T) {
	patterns, err := ParsePatterns([]string{"t"})
	if err != nil {
		t.Fatal(err)
	}
	quickest := func(groups int) time.Duration {
		r := newRouter()
		for range groups {
			g := &group{}
			r.add(patterns, &lane{group: g, patterns: patterns})
			r.add(patterns, &lane{group: g, patterns: patterns})
		}
		sh := r.shardOf([]byte("t"))
		best := time.Hour
		for range 30 {
			r.generation.Add(1) // nothing is remembered
			start := time.Now()
			rt := r.lookup(sh, []byte("t"))
			best = min(best, time.Since(start))
			if len(rt.receivers) != groups {
				t.Fatalf("%d receivers, want %d", len(rt.receivers), groups)
			}
			for _, got := range rt.receivers {
				if n := len(got.(*groupRoute).lanes); n != 2 {
					t.Fatalf("a group is reached through %d lanes, want 2", n)
				}
			}
		}
		return best
	}
	if few, many := quickest(200), quickest(8000); many > 800*few { // the square of 40 is 1600, and a busy machine's caches are small
		t.Errorf("a lookup takes %v with 8000 groups, %v with 200", many, few)
	}
}

// What is remembered of topics is bounded also where one group receives them through very many lanes.
func TestRoutesOfManyLanesAreBounded(t *testing.T) {
	b := newBroker(t, nil)
	const lanes = 1000
	for i := range lanes {
		join(t, b, JoinOptions{Patterns: []string{"t.*", fmt.Sprint("x.", i)}, Settings: GroupSettings{Capacity: 10, Overflow: OverflowDropNewest}})
	}
	for i := range 6000 {
		publish(t, b, post{topic: fmt.Sprint("t.", i), payload: "x"})
	}
	named := 0
	for i := range b.router.shards {
		sh := &b.router.shards[i]
		kept, references := 0, 0
		for _, rt := range sh.routes {
			references += rt.references
			for _, r := range rt.receivers {
				kept += len(r.(*groupRoute).lanes)
			}
		}
		if kept > shardReferences || references != sh.references {
			t.Fatalf("a shard keeps %d lanes, and counts %d references of %d", kept, sh.references, references)
		}
		named += kept
	}
	if named < routeShards*shardReferences/2 {
		t.Errorf("%d lanes are kept: the test shows nothing", named)
	}
}
