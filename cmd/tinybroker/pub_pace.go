package main

import (
	"context"
	"time"
)

// pacer keeps a time between messages. Should one be late, the next ones are not hurried by more than a tenth of a second.
type pacer struct {
	gap time.Duration
	due time.Time
}

func (p *pacer) wait(ctx context.Context) error {
	if p.gap == 0 {
		return ctx.Err()
	}
	now := time.Now()
	if p.due.Before(now.Add(-100 * time.Millisecond)) {
		p.due = now
	}
	wait := p.due.Sub(now)
	p.due = p.due.Add(p.gap)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
