package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// alarms are all that there are here.
func alarms() map[string]func(context.Context) alarm {
	return map[string]func(context.Context) alarm{"system": newAlarm, "timer": newTimerAlarm}
}

func TestPacerRests(t *testing.T) {
	for name, newAlarm := range alarms() {
		t.Run(name, func(t *testing.T) {
			p := &Pacer{ctx: t.Context(), alarm: newAlarm(t.Context())}
			defer p.Close()
			for _, d := range []time.Duration{3 * time.Millisecond, time.Nanosecond, 500 * time.Microsecond, 20 * time.Millisecond} {
				began := time.Now()
				if err := p.Rest(d); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < max(d, minRest) {
					t.Errorf("a rest of %v took %v", d, took)
				}
			}
		})
	}
}

// noAlarm fails when it is used.
type noAlarm struct{ alarm }

var errNoAlarm = errors.New("no alarm")

func (noAlarm) sleep(time.Duration) error { return errNoAlarm }

func TestPacerDoesNotRestForWhatIsLate(t *testing.T) {
	p := &Pacer{ctx: t.Context(), alarm: noAlarm{}}
	for _, d := range []time.Duration{0, -time.Second} {
		if err := p.Rest(d); err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
	if err := p.Rest(time.Nanosecond); !errors.Is(err, errNoAlarm) {
		t.Errorf("an alarm that fails: got %v", err)
	}
}

func TestPacerEndsWithItsContext(t *testing.T) {
	for name, newAlarm := range alarms() {
		t.Run(name, func(t *testing.T) {
			why := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			p := &Pacer{ctx: ctx, alarm: newAlarm(ctx)}
			defer p.Close()
			time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
			if err := p.Rest(time.Hour); !errors.Is(err, why) {
				t.Errorf("got %v while it rested", err)
			}
			for _, d := range []time.Duration{time.Hour, 0} {
				if err := p.Rest(d); !errors.Is(err, why) {
					t.Errorf("got %v for %v afterwards", err, d)
				}
			}
		})
	}
}

// BenchmarkPacer tells how late half of some short rests end, and all but one percent.
func BenchmarkPacer(b *testing.B) {
	for name, newAlarm := range alarms() {
		b.Run(fmt.Sprint("alarm=", name), func(b *testing.B) {
			p := &Pacer{ctx: b.Context(), alarm: newAlarm(b.Context())}
			defer p.Close()
			const rest = 300 * time.Microsecond
			var late []time.Duration
			for b.Loop() {
				began := time.Now()
				if err := p.Rest(rest); err != nil {
					b.Fatal(err)
				}
				late = append(late, time.Since(began)-rest)
			}
			slices.Sort(late)
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "p50-late-µs")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "p99-late-µs")
		})
	}
}
