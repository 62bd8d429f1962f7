package core

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkPublish is the cost of one message through the broker without a network: frames of 500 messages of 128 bytes
// on one topic, queued at and taken by each subscription.
func BenchmarkPublish(b *testing.B) {
	for _, subs := range []int{0, 1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("subs=%d", subs), func(b *testing.B) {
			benchmarkPublish(b, subs, 0, numberedOn(500, "bench.topic"))
		})
	}
}

// BenchmarkPublishAmongOthers shows that the cost grows with the receivers, not with what else is subscribed.
func BenchmarkPublishAmongOthers(b *testing.B) {
	for _, others := range []int{0, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			benchmarkPublish(b, 1, others, numberedOn(500, "bench.topic"))
		})
	}
}

// BenchmarkPublishTopics goes round 10 000 topics, another one with every message, into one wide subscription.
func BenchmarkPublishTopics(b *testing.B) {
	topics := make([]string, 10_000)
	for i := range topics {
		topics[i] = fmt.Sprintf("bench.topic.%d", i)
	}
	benchmarkPublish(b, 1, 0, numberedOn(10_000, topics...))
}

// BenchmarkPublishBehind is the cost of 16 frames that queue up at a subscription, or at a member of a group, before it takes them.
func BenchmarkPublishBehind(b *testing.B) {
	for _, n := range []int{1, 20, 500} {
		batch := batchOf(numberedOn(n, "bench.topic")...)
		b.Run(fmt.Sprintf("broadcast/messages=%d", n), func(b *testing.B) {
			broker := newBroker(b, nil)
			s := subscribe(b, broker, SubscribeOptions{Patterns: []string{"bench.**"}})
			var d Delivery
			for b.Loop() {
				for range 16 {
					publishBatch(b, broker, &Batch{Data: batch.Data, Runs: batch.Runs})
				}
				for s.Take(&d, 1<<20) {
					s.Settle(&d, true)
				}
			}
		})
		b.Run(fmt.Sprintf("group/messages=%d", n), func(b *testing.B) {
			broker := newBroker(b, nil)
			m := join(b, broker, JoinOptions{MaxInFlight: 16 * n})
			var d Delivery
			for b.Loop() {
				for range 16 {
					publishBatch(b, broker, &Batch{Data: batch.Data, Runs: batch.Runs})
				}
				for m.Take(&d, 1<<20) {
					all := SequenceRange{d.FirstSequence, d.FirstSequence + uint64(d.Count) - 1}
					m.Settle(&d, true)
					m.Ack(all)
				}
			}
		})
	}
}

// BenchmarkPublishDropped is the cost of a frame of ten messages for which a full queue has to drop.
func BenchmarkPublishDropped(b *testing.B) {
	for _, policy := range []OverflowPolicy{OverflowDropOldest, OverflowDropNewest} {
		b.Run(policy.String(), func(b *testing.B) {
			broker := newBroker(b, nil)
			subscribe(b, broker, SubscribeOptions{Patterns: []string{"bench.**"}, Overflow: policy, Capacity: 100})
			batch := batchOf(numberedOn(10, "bench.topic")...)
			for b.Loop() {
				publishBatch(b, broker, &Batch{Data: batch.Data, Runs: batch.Runs})
			}
		})
	}
}

// numberedOn returns n posts of 128 bytes that go round the topics.
func numberedOn(n int, topics ...string) []post {
	posts := make([]post, n)
	for i := range posts {
		posts[i] = post{topic: topics[i%len(topics)], payload: strings.Repeat("x", 128)}
	}
	return posts
}

func benchmarkPublish(b *testing.B, subs, others int, posts []post) {
	broker := newBroker(b, func(o *Options) { o.MaxSubscriptions = 2_000_000 })
	for i := range others {
		if _, err := broker.Subscribe(SubscribeOptions{Patterns: []string{fmt.Sprintf("other.%d.*", i)}}); err != nil {
			b.Fatal(err)
		}
	}
	var receivers []*Subscription
	for range subs {
		receivers = append(receivers, subscribe(b, broker, SubscribeOptions{Patterns: []string{"bench.**"}}))
	}
	batch := batchOf(posts...)
	runs := batch.Runs
	var d Delivery
	b.ReportAllocs()
	for b.Loop() {
		next := Batch{Data: batch.Data, Runs: runs}
		if err := broker.Publish(context.Background(), &next); err != nil {
			b.Fatal(err)
		}
		for _, s := range receivers {
			for s.Take(&d, 72<<10) {
				s.Settle(&d, true)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(posts)), "ns/msg")
}

// BenchmarkRoute is one lookup of a topic's receivers, remembered and not.
func BenchmarkRoute(b *testing.B) {
	for _, n := range []int{1, 1000, 1_000_000} {
		broker := newBroker(b, func(o *Options) { o.MaxSubscriptions = 2_000_000 })
		for i := range n {
			if _, err := broker.Subscribe(SubscribeOptions{Patterns: []string{mixedPattern(i)}}); err != nil {
				b.Fatal(err)
			}
		}
		topic := []byte("a.17.x")
		sh := broker.router.shardOf(topic)
		b.Run(fmt.Sprintf("subs=%d/cached", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sh.mu.Lock()
				broker.router.lookup(sh, topic)
				sh.mu.Unlock()
			}
		})
		b.Run(fmt.Sprintf("subs=%d/uncached", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				broker.router.generation.Add(1)
				sh.mu.Lock()
				broker.router.lookup(sh, topic)
				sh.mu.Unlock()
			}
		})
	}
}

// mixedPattern returns one of four kinds of patterns, of which few match any one topic.
func mixedPattern(i int) string {
	switch i % 4 {
	case 0:
		return fmt.Sprintf("a.%d.x", i)
	case 1:
		return fmt.Sprintf("a.%d.*", i)
	case 2:
		return fmt.Sprintf("b.%d.**", i)
	default:
		return fmt.Sprintf("a.p%d*.x", i)
	}
}

// BenchmarkGroup is the cost of one message through a group without a network: frames of 500 messages of 128 bytes, queued,
// taken and acknowledged.
func BenchmarkGroup(b *testing.B) {
	for _, members := range []int{1, 4, 16} {
		for _, ack := range []AckMode{AckExplicit, AckNone} {
			for _, keyed := range []bool{false, true} {
				b.Run(fmt.Sprintf("members=%d/ack=%s/keyed=%v", members, ack, keyed), func(b *testing.B) {
					benchmarkGroup(b, members, ack, keyed)
				})
			}
		}
	}
}

func benchmarkGroup(b *testing.B, n int, ack AckMode, keyed bool) {
	broker := newBroker(b, nil)
	var members []*Member
	for range n {
		members = append(members, join(b, broker, JoinOptions{Settings: GroupSettings{Ack: ack}}))
	}
	posts := numberedOn(500, "bench.topic")
	if keyed {
		for i := range posts {
			posts[i].key = fmt.Sprint(i % 100)
		}
	}
	batch := batchOf(posts...)
	var d Delivery
	b.ReportAllocs()
	for b.Loop() {
		next := Batch{Data: batch.Data, Runs: batch.Runs}
		if err := broker.Publish(context.Background(), &next); err != nil {
			b.Fatal(err)
		}
		for left := len(posts); left > 0; {
			for _, m := range members {
				if !m.Take(&d, 72<<10) {
					continue
				}
				r := SequenceRange{d.FirstSequence, d.FirstSequence + uint64(d.Count) - 1}
				left -= d.Count
				m.Settle(&d, true)
				if ack == AckExplicit {
					m.Ack(r)
				}
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(posts)), "ns/msg")
}
