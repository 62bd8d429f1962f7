package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what came out of a run.
type Result struct {
	// Published and Delivered are the measured messages, without the warm-up; Delivered adds up all subscribers.
	Published, Delivered int64
	// Publishing is the time from the first measured message to the last confirmation, Delivering to the last delivery.
	Publishing, Delivering time.Duration
	// Latency is that of the measured messages in nanoseconds, from when each was to be sent until it was handed to the
	// subscriber.
	Latency *hdrhistogram.Histogram

	// What went wrong, in the warm-up too.
	Lost       int64 // accepted by the broker and missing at a subscriber, or at all members of a group
	Duplicated int64 // delivered again, or out of order
	Foreign    int64 // delivered, and nothing that this run has published
	Evicted    int64 // subscribers that the broker gave up
	Refused    int64 // messages that the broker did not accept
	Refusal    error // why the first of them was not; nil: none
}

// Clean reports whether every message was accepted and arrived exactly once.
func (r *Result) Clean() bool {
	return r.Lost == 0 && r.Duplicated == 0 && r.Foreign == 0 && r.Evicted == 0 && r.Refused == 0
}

func (r *Result) add(reader *reader) {
	r.Delivered += reader.measured
	r.Duplicated += reader.duplicates
	r.Foreign += reader.foreign
	if reader.ending != nil {
		r.Evicted++
	}
	r.Latency.Merge(reader.latency)
}

// countShares counts what the members of a group have lost, or got twice, between them.
func (r *Result) countShares(members []*reader, accepted int64, publishers int) {
	seen, came := int64(0), int64(0)
	for _, m := range members {
		came += m.count
	}
	for p := range publishers {
		trackers := make([]tracker, len(members))
		for i, m := range members {
			trackers[i] = m.trackers[p]
		}
		seen += distinct(trackers)
	}
	r.Duplicated += came - seen
	r.Lost += max(0, accepted-seen)
}

// PerSecond is a rate; 0 when no time has passed.
func PerSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
