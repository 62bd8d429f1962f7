package bench

import (
	"context"
	"time"
)

// minRest is the shortest rest of a Pacer. Between messages that are due sooner than that it would take more of the processor
// to sleep than to send them.
const minRest = 100 * time.Microsecond

// Pacer waits for the moments of a schedule. It is more exact than a time.Timer: the scheduler of Go waits for timers in
// epoll, in whole milliseconds, so that an otherwise idle program wakes up to a millisecond late (src/runtime/netpoll_epoll.go),
// which is longer than a message takes. A Pacer is for one goroutine.
type Pacer struct {
	ctx   context.Context
	alarm alarm
}

// alarm sleeps. It is made for one context, whose end ends a sleep as well.
type alarm interface {
	sleep(d time.Duration) error
	close()
}

// NewPacer returns a pacer whose waits end with ctx. Close releases it.
func NewPacer(ctx context.Context) *Pacer {
	return &Pacer{ctx: ctx, alarm: newAlarm(ctx)}
}

// Rest returns after d, or a little later: 100 µs at least have passed then, however short d is. It returns at once when d is
// not positive. The error is the cause of the context's end.
func (p *Pacer) Rest(d time.Duration) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	if err := p.alarm.sleep(max(d, minRest)); err != nil {
		if cause := context.Cause(p.ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

// Close releases the pacer. It is not used after that.
func (p *Pacer) Close() { p.alarm.close() }

// timerAlarm is an alarm where the system offers none that is more exact.
type timerAlarm struct {
	ctx   context.Context
	timer *time.Timer
}

func newTimerAlarm(ctx context.Context) alarm {
	timer := time.NewTimer(0)
	timer.Stop()
	return &timerAlarm{ctx: ctx, timer: timer}
}

func (a *timerAlarm) sleep(d time.Duration) error {
	a.timer.Reset(d)
	select {
	case <-a.timer.C:
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

func (a *timerAlarm) close() { a.timer.Stop() }
