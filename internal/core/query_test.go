package core

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The first of many rows are those that sorting them all would put first.
func TestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(0, 50), 0, 200).Draw(t, "values")
		n := rapid.IntRange(0, 100).Draw(t, "n")
		rows := make([]*int, len(values))
		for i := range values {
			rows[i] = &values[i]
		}
		var got []int
		for _, row := range first(rows, n, func(a, b *int) int { return cmp.Compare(*a, *b) }) {
			got = append(got, *row)
		}
		want := slices.Sorted(slices.Values(values))
		want = want[:min(n, len(want))]
		if !slices.Equal(got, want) {
			t.Fatalf("the first %d of %v are %v, want %v", n, values, got, want)
		}
	})
}
