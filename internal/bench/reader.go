package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// reader is one subscriber of a run. Its plain fields belong to the goroutine of Subscribe until that has ended.
type reader struct {
	run    *run
	client *rpc.Client
	ended  chan struct{} // closed when Subscribe has returned

	trackers   []tracker // by publisher
	count      int64     // new messages
	duplicates int64
	foreign    int64 // what is not of this run
	latency    *hdrhistogram.Histogram
	measured   int64 // new messages after the warm-up
	at         int64 // a recent look at the clock
	stale      int   // how many messages it is good for still
	lastAt     int64 // when the last measured message came

	fresh atomic.Int64 // count, as of the last frame

	ending *core.Ending // how the broker ended the subscription; nil: it did not
	err    error
}

const (
	// What the histogram tells apart: three digits between a microsecond and ten minutes.
	leastLatency = int64(time.Microsecond)
	mostLatency  = int64(10 * time.Minute)
	digits       = 3
	// clockGood is for how many messages of one frame, which came together, a look at the clock is good.
	clockGood = 32
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(leastLatency, mostLatency, digits)
}

// openReader subscribes, and returns when the subscription is registered.
func (r *run) openReader(ctx context.Context) (*reader, error) {
	client, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	reader := &reader{
		run: r, client: client, ended: make(chan struct{}),
		trackers: make([]tracker, r.o.Publishers), latency: newHistogram(),
	}
	opened := make(chan struct{}, 1)
	options := rpc.SubscribeOptions{
		Patterns: []string{r.pattern}, ClientName: "bench", NoResubscribe: true,
		OnOpened: func(rpc.Opened) {
			select {
			case opened <- struct{}{}:
			default: // once is enough
			}
		},
	}
	handle := reader.handleInOrder
	if r.o.Group != "" {
		options.Group, options.Ack, options.MaxInFlight = r.o.Group, r.o.Ack, r.o.MaxInFlight
		handle = reader.handleShare
	}
	go func() {
		defer close(reader.ended)
		reader.end(client.Subscribe(r.reading, options, handle))
	}()
	select {
	case <-opened:
		return reader, nil
	case <-reader.ended:
		client.Close()
		if reader.ending != nil {
			return nil, fmt.Errorf("subscribe: %w", &core.EndedError{Ending: *reader.ending})
		}
		return nil, fmt.Errorf("subscribe: %w", reader.err)
	}
}

// end notes why Subscribe has returned.
func (r *reader) end(err error) {
	if ended, ok := errors.AsType[*core.EndedError](err); ok {
		r.ending = &ended.Ending
		return
	}
	if r.run.reading.Err() == nil {
		r.err = err
	}
}

func (r *reader) handleInOrder(d *rpc.Delivery) error {
	s, ok := r.stampOf(d)
	r.note(d, s, ok, ok && r.trackers[s.publisher].inOrder(s.sequence))
	return nil
}

func (r *reader) handleShare(d *rpc.Delivery) error {
	s, ok := r.stampOf(d)
	r.note(d, s, ok, ok && r.trackers[s.publisher].inAnyOrder(s.sequence))
	return nil
}

// stampOf reads a message of this run.
func (r *reader) stampOf(d *rpc.Delivery) (s stamp, ok bool) {
	s, ok = readStamp(d.Payload)
	return s, ok && int(s.publisher) < len(r.trackers) && len(d.Payload) == r.run.o.Size && strings.HasPrefix(d.Topic, r.run.topic)
}

func (r *reader) note(d *rpc.Delivery, s stamp, ours, fresh bool) {
	switch {
	case fresh:
		r.count++
		if !s.warmup {
			r.time(s)
		}
	case ours:
		r.duplicates++
	default:
		r.foreign++
	}
	r.stale--
	if !d.More {
		r.stale = 0
		r.fresh.Store(r.count)
	}
}

// time notes how long a message was on its way.
func (r *reader) time(s stamp) {
	if r.stale <= 0 {
		r.at, r.stale = r.run.now(), clockGood
	}
	r.measured++
	r.lastAt = r.at
	// What is out of its range the histogram would not take.
	_ = r.latency.RecordValue(min(max(r.at-s.at, 0), mostLatency))
}

// close ends the subscription, which the run has told to stop.
func (r *reader) close() {
	<-r.ended
	r.client.Close()
}
