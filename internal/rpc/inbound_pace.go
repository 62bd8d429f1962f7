package rpc

import "time"

// Calls that were reset before they were a second old: a connection may have resetBurst of them at once and one each resetInterval
// after that. A client that drops what it has just begun seldom comes near it; one that does nothing else would keep the
// processors busy with calls that nobody wants, at the cost of everybody (CVE-2023-44487).
const (
	resetBurst    = 50
	resetInterval = time.Millisecond
	resetYoung    = time.Second
)

// resetPace says how long a connection is not to be read, for the calls that its client has begun and reset. The zero value is ready. It is for
// one goroutine.
type resetPace struct{ paid time.Time }

// reset notes the reset of a call at now and returns the time to wait.
func (p *resetPace) reset(now time.Time) time.Duration {
	if free := now.Add(-resetBurst * resetInterval); p.paid.Before(free) {
		p.paid = free
	}
	p.paid = p.paid.Add(resetInterval)
	return max(0, p.paid.Sub(now))
}
