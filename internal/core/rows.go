package core

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// table picks the rows of a snapshot: what the filter lets through of all, sorted, and cut at the limit. Nearly all of many rows are looked at
// and not shown, once a second for each watcher, so tables are used again.
type table[T any] struct {
	all   []T
	kept  []*T // rows are large: what moves about are pointers
	names []string
}

// tables returns a pool of tables. What it hands out is empty.
func tables[T any]() *sync.Pool { return &sync.Pool{New: func() any { return new(table[T]) }} }

var (
	topicTables        = tables[TopicStats]()
	subscriptionTables = tables[subscriptionRow]()
	groupTables        = tables[GroupStats]()
	memberTables       = tables[MemberStats]()
	evictionTables     = tables[EvictionStats]()
)

// free empties the table and gives it back to its pool.
func (t *table[T]) free(pool *sync.Pool) {
	clear(t.all)
	clear(t.kept)
	clear(t.names)
	t.all, t.kept, t.names = t.all[:0], t.kept[:0], t.names[:0]
	pool.Put(t)
}

// pick returns copies of the rows to show and tells how many there are without the limit. names appends what the filter looks at;
// tie is a name that orders rows which are equal otherwise.
func (t *table[T]) pick(q *Query, sortings []sorting[T], names func([]string, *T) []string, tie func(*T) string) (shown []T, count int) {
	filter := strings.ToLower(q.Filter)
	for i := range t.all {
		row := &t.all[i]
		if filter != "" {
			if t.names = names(t.names[:0], row); !contains(t.names, filter) {
				continue
			}
		}
		t.kept = append(t.kept, row)
	}
	chosen := sortings[0]
	for _, s := range sortings {
		if s.column == q.Sort {
			chosen = s
		}
	}
	best := first(t.kept, q.Limit, func(a, b *T) int {
		c := chosen.compare(a, b)
		if q.Reverse {
			c = -c
		}
		if c == 0 {
			c = cmp.Compare(tie(a), tie(b))
		}
		return c
	})
	shown = make([]T, len(best))
	for i := range shown {
		shown[i] = *best[i]
	}
	return shown, len(t.kept)
}

// contains reports whether a name contains filter, which is in lower case.
func contains(names []string, filter string) bool {
	for _, n := range names {
		if strings.Contains(strings.ToLower(n), filter) {
			return true
		}
	}
	return false
}

// first returns the first n of rows in order, or all when there are no more. It rearranges rows. Where n are few of many, most cost one
// comparison.
func first[T any](rows []*T, n int, compare func(a, b *T) int) []*T {
	if len(rows) > 2*n && n > 0 {
		// A heap of those that are the first so far, with the last of them on top.
		heap := rows[:n]
		for i := n/2 - 1; i >= 0; i-- {
			sink(heap, i, compare)
		}
		for _, row := range rows[n:] {
			if compare(row, heap[0]) < 0 {
				heap[0] = row
				sink(heap, 0, compare)
			}
		}
		rows = heap
	}
	slices.SortFunc(rows, compare)
	return rows[:min(n, len(rows))]
}

// sink puts element i of a heap in its place below it.
func sink[T any](heap []*T, i int, compare func(a, b *T) int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && compare(heap[child+1], heap[child]) > 0 {
			child++
		}
		if compare(heap[child], heap[i]) <= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
