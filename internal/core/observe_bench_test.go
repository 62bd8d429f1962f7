package core

import (
	"fmt"
	"testing"
)

// BenchmarkObserve answers what a watcher asks once a second, with 10 000 subscriptions and as many topics.
func BenchmarkObserve(b *testing.B) {
	const n = 10_000
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
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := broker.Observe(c.q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
