package rpc

import (
	"math/rand/v2"
	"time"
)

const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	// stableAfter is how long a stream must have lived for the next pause to be a short one again.
	stableAfter = time.Minute
)

// pauses are the growing, jittered gaps before a stream is opened again. The zero value begins with the shortest.
type pauses struct {
	taken int
}

// lived takes note of how long the last stream stood.
func (p *pauses) lived(d time.Duration) {
	if d >= stableAfter {
		p.taken = 0
	}
}

// afterEviction returns the next gap for a subscriber that was too slow: 100 ms, then twice as much each time up to 5 s,
// less up to a fifth.
func (p *pauses) afterEviction() time.Duration {
	d := p.grown(minPause)
	return d - rand.N(d/5)
}

// afterLoss returns the next gap after the connection was lost. Many clients lose it in the same instant, so already the
// first gap is anything up to a second.
func (p *pauses) afterLoss() time.Duration {
	return minPause + rand.N(p.grown(time.Second)-minPause)
}

func (p *pauses) grown(d time.Duration) time.Duration {
	d = min(maxPause, d<<min(p.taken, 10))
	p.taken++
	return d
}
