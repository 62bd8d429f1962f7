package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// mixedSet is a subscription of a large system: mostly literal topics, some of each kind of wildcard.
func mixedSet(tb testing.TB, i int) *PatternSet {
	tb.Helper()
	var patterns []string
	switch i % 10 {
	case 0:
		patterns = []string{fmt.Sprintf("tenant.%d.*.created", i)}
	case 1:
		patterns = []string{fmt.Sprintf("tenant.%d.**", i)}
	case 2:
		patterns = []string{fmt.Sprintf("metrics.*.host-%d.cpu", i)}
	case 3:
		patterns = []string{fmt.Sprintf("devices.sensor-%d-*.{temp,hum}", i)}
	case 4:
		patterns = []string{fmt.Sprintf("jobs.*-%d.done", i), "!jobs.test-*.done"}
	default:
		patterns = []string{fmt.Sprintf("tenant.%d.orders.created", i)}
	}
	return mustParse(tb, patterns...)
}

func mixedTopic(r *rand.Rand, n int) string {
	i := r.IntN(n)
	switch r.IntN(5) {
	case 0:
		return fmt.Sprintf("tenant.%d.orders.created", i)
	case 1:
		return fmt.Sprintf("tenant.%d.invoices.eu.sent", i)
	case 2:
		return fmt.Sprintf("metrics.eu.host-%d.cpu", i)
	case 3:
		return fmt.Sprintf("devices.sensor-%d-b.temp", i)
	}
	return fmt.Sprintf("jobs.nightly-%d.done", i)
}

func BenchmarkIndexMatch(b *testing.B) {
	for _, n := range []int{1, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("subscriptions=%d", n), func(b *testing.B) {
			var ix index[int]
			for i := range n {
				ix.add(mixedSet(b, i), i)
			}
			r := rand.New(rand.NewPCG(1, 1))
			topics := make([]string, 4096)
			for i := range topics {
				topics[i] = mixedTopic(r, n)
			}
			var found []int
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				found = ix.match(topics[i%len(topics)], found[:0])
				i++
			}
		})
	}
}

func BenchmarkIndexAddRemove(b *testing.B) {
	for _, n := range []int{1, 1_000_000} {
		b.Run(fmt.Sprintf("subscriptions=%d", n), func(b *testing.B) {
			var ix index[int]
			for i := range n {
				ix.add(mixedSet(b, i), i)
			}
			sets := make([]*PatternSet, 1000)
			for i := range sets {
				sets[i] = mixedSet(b, n+i)
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				ix.add(sets[i%len(sets)], -1)
				ix.remove(sets[i%len(sets)], -1)
				i++
			}
		})
	}
}

// BenchmarkIndexMatchPlain has patterns that NATS can express as well. internal/bench/peers has the same for its index, and
// runs this one beside it.
func BenchmarkIndexMatchPlain(b *testing.B) {
	const n = 1_000_000
	var ix index[int]
	for i := range n {
		pattern := fmt.Sprintf("tenant.%d.orders.created", i)
		switch i % 10 {
		case 0:
			pattern = fmt.Sprintf("tenant.%d.*.created", i)
		case 1:
			pattern = fmt.Sprintf("tenant.%d.**", i)
		case 2:
			pattern = fmt.Sprintf("metrics.*.host-%d.cpu", i)
		}
		ix.add(mustParse(b, pattern), i)
	}
	r := rand.New(rand.NewPCG(1, 1))
	topics := make([]string, 4096)
	for k := range topics {
		i := r.IntN(n)
		switch r.IntN(3) {
		case 0:
			topics[k] = fmt.Sprintf("tenant.%d.orders.created", i)
		case 1:
			topics[k] = fmt.Sprintf("tenant.%d.invoices.eu.sent", i)
		default:
			topics[k] = fmt.Sprintf("metrics.eu.host-%d.cpu", i)
		}
	}
	var found []int
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		found = ix.match(topics[i%len(topics)], found[:0])
		i++
	}
}
