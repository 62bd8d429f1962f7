package core

import (
	"fmt"
	"testing"
)

// BenchmarkObserve answers what a watcher asks once a second, with so many subscriptions and as many topics, of which the broker follows
// no more than it remembers.
func BenchmarkObserve(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		broker := newBroker(b, nil)
		for i := range n {
			subscribe(b, broker, SubscribeOptions{Patterns: []string{fmt.Sprintf("news.%d.*", i)}, Client: fmt.Sprintf("client-%d", i%100)})
			publish(b, broker, post{topic: fmt.Sprintf("stock.%05d", i), payload: "x"})
		}
		broker.Sample()
		for _, c := range []struct {
			name string
			q    Query
		}{
			{"totals", Query{}},
			{"overview", Query{View: ViewOverview, Limit: 100}},
			{"topics", Query{View: ViewTopics}},
			{"subscriptions", Query{View: ViewSubscriptions}},
			{"filter", Query{View: ViewSubscriptions, Filter: "client-7"}},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := broker.Observe(c.q); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
