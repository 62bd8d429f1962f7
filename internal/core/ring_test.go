package core

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRingAgainstASlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var r ring[int]
	var want []int
	for step := range 20_000 {
		switch rng.IntN(6) {
		case 0:
			r.pushBack(step)
			want = append(want, step)
		case 1:
			i := rng.IntN(len(want) + 1)
			r.insert(i, step)
			want = slices.Insert(want, i, step)
		case 2:
			if len(want) == 0 {
				continue
			}
			i := rng.IntN(len(want))
			if got := r.remove(i); got != want[i] {
				t.Fatalf("step %d: removed %d, want %d", step, got, want[i])
			}
			want = slices.Delete(want, i, i+1)
		default:
			if len(want) == 0 {
				continue
			}
			if got := r.popFront(); got != want[0] {
				t.Fatalf("step %d: popped %d, want %d", step, got, want[0])
			}
			want = want[1:]
		}
		if rng.IntN(200) == 0 {
			for range rng.IntN(300) {
				r.insert(len(want)/3, step)
				want = slices.Insert(want, len(want)/3, step)
			}
		}
		if r.len != len(want) {
			t.Fatalf("step %d: %d elements, want %d", step, r.len, len(want))
		}
		for i := range want {
			if *r.at(i) != want[i] {
				t.Fatalf("step %d: element %d is %d, want %d", step, i, *r.at(i), want[i])
			}
		}
	}
}
