package core

import (
	"sync/atomic"
	"time"
)

// latencyBounds are the upper bounds of the histogram of delivery latency.
var latencyBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, time.Minute,
}

// latency is a histogram. The zero value is empty. Safe for concurrent use.
type latency struct {
	counts [len(latencyBounds) + 1]atomic.Uint64 // the last one is for what is over every bound
	sum    atomic.Int64                          // nanoseconds
}

func (l *latency) add(d time.Duration) {
	d = max(0, d)
	i := 0
	for i < len(latencyBounds) && d > latencyBounds[i] {
		i++
	}
	l.counts[i].Add(1)
	l.sum.Add(int64(d))
}

// observeLatency notes how long the first message of a delivery that was written has been here: one look at the clock a
// frame, whatever it holds. Redeliveries have waited for their turn; they say nothing about the broker.
func (b *Broker) observeLatency(d *Delivery) {
	if d.Attempt == 1 {
		b.latency.add(b.clock.Now().Sub(b.started) - d.born)
	}
}

// LatencyStats is a histogram of the time from a message's arrival to its being written to a subscriber's stream. It counts frames, not
// messages: of each frame to a subscriber the message that came first, redeliveries left out.
type LatencyStats struct {
	Bounds []time.Duration
	// Counts has one element more than Bounds: how many are at most the bound and over the one before, the last one
	// for those over all.
	Counts []uint64
	Sum    time.Duration
}

func (l *latency) stats() LatencyStats {
	st := LatencyStats{Bounds: latencyBounds[:], Counts: make([]uint64, len(l.counts)), Sum: time.Duration(l.sum.Load())}
	for i := range l.counts {
		st.Counts[i] = l.counts[i].Load()
	}
	return st
}
