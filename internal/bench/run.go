package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

const (
	// quietFor is how long nothing may arrive before what is missing counts as lost.
	quietFor = 10 * time.Second
	// lookEvery is how often it is looked whether everything has arrived.
	lookEvery = 2 * time.Millisecond
	// tellEvery is how often Progress is told.
	tellEvery = 250 * time.Millisecond
)

// run is one run.
type run struct {
	o       Options
	dial    func(context.Context) (*rpc.Client, error)
	began   time.Time
	topic   string // what all topics of this run begin with
	topics  []string
	pattern string

	reading     context.Context // ends when the subscribers are to stop
	stopReading context.CancelFunc
	readers     []*reader
	publishers  []*publisher
	confirmedAt int64 // when the last part's last message was confirmed
}

// Run puts the load on a broker that dial connects to, and returns what came out of it. What went wrong with messages is in
// the result; an error means that there is none.
func Run(ctx context.Context, o Options, dial func(context.Context) (*rpc.Client, error)) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &run{o: o, dial: dial, began: time.Now()}
	r.name()
	r.reading, r.stopReading = context.WithCancel(ctx)
	defer r.close()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	if o.Warmup > 0 {
		if err := r.do(ctx, part{warmup: true, end: int64(o.Warmup)}); err != nil {
			return nil, err
		}
	}
	before := r.totals()
	start := r.now()
	if err := r.do(ctx, part{messages: o.Messages, end: int64(o.Duration)}); err != nil {
		return nil, err
	}
	r.close()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return r.result(before, start)
}

// name gives the run topics of its own, so that it does not see what others publish.
func (r *run) name() {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	r.topic = "bench." + hex.EncodeToString(id[:])
	if r.o.Topics == 1 {
		r.topics, r.pattern = []string{r.topic}, r.topic
		return
	}
	r.topics, r.pattern = make([]string, r.o.Topics), r.topic+".**"
	for i := range r.topics {
		r.topics[i] = r.topic + "." + strconv.Itoa(i)
	}
}

// now is the time since the run began, in nanoseconds.
func (r *run) now() int64 { return int64(time.Since(r.began)) }

func (r *run) open(ctx context.Context) error {
	for range r.o.Subscribers {
		reader, err := r.openReader(ctx)
		if err != nil {
			return err
		}
		r.readers = append(r.readers, reader)
	}
	for i := range r.o.Publishers {
		p, err := r.openPublisher(ctx, i)
		if err != nil {
			return err
		}
		r.publishers = append(r.publishers, p)
	}
	return nil
}

// close ends everything. It may be called again.
func (r *run) close() {
	for _, p := range r.publishers {
		p.client.Close() // all is confirmed by now, or the run has failed
	}
	r.stopReading()
	for _, reader := range r.readers {
		reader.close()
	}
}

// do does one part of the run: all publishers publish, and all subscribers receive the last of it. The end of p is given
// relative to now.
func (r *run) do(ctx context.Context, p part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.start = r.now()
	if p.end > 0 {
		p.end += p.start
	}
	defer r.tell(p)()
	var publishing sync.WaitGroup
	for _, publisher := range r.publishers {
		publishing.Go(func() {
			if err := publisher.publish(ctx, p); err != nil {
				cancel(err)
			}
		})
	}
	publishing.Wait()
	r.confirmedAt = r.now()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.settle(ctx)
	return context.Cause(ctx)
}

// settle waits until every subscriber that is still there has everything, or nothing more comes.
func (r *run) settle(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	last, moved := int64(-1), time.Now()
	for !r.settled() {
		if n := r.delivered(); n != last {
			last, moved = n, time.Now()
		}
		if time.Since(moved) > quietFor {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *run) settled() bool {
	accepted := r.totals().accepted
	if r.o.Group != "" {
		return r.delivered() >= accepted
	}
	for _, reader := range r.readers {
		select {
		case <-reader.ended: // there will be no more
		default:
			if reader.fresh.Load() < accepted {
				return false
			}
		}
	}
	return true
}

func (r *run) delivered() (n int64) {
	for _, reader := range r.readers {
		n += reader.fresh.Load()
	}
	return n
}

// totals are counts of all publishers since the run began.
type totals struct{ published, accepted, refused, delivered int64 }

func (r *run) totals() (t totals) {
	for _, p := range r.publishers {
		t.published += p.published.Load()
		t.refused += p.refused.Load()
	}
	t.accepted = t.published - t.refused
	t.delivered = r.delivered()
	return t
}

// tell tells Progress until the returned function is called.
func (r *run) tell(p part) (stop func()) {
	if r.o.Progress == nil {
		return func() {}
	}
	before := r.totals()
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		ticker := time.NewTicker(tellEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.o.Progress(r.progress(p, before))
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		telling.Wait()
	}
}

func (r *run) progress(p part, before totals) Progress {
	now := r.totals()
	progress := Progress{
		Warmup: p.warmup, Published: now.published - before.published, Delivered: now.delivered - before.delivered,
		Elapsed: time.Duration(r.now() - p.start),
	}
	if p.messages > 0 {
		progress.Done = float64(progress.Published) / float64(p.messages)
	} else {
		progress.Done = float64(progress.Elapsed) / float64(p.end-p.start)
	}
	progress.Done = min(progress.Done, 1)
	return progress
}

// result adds up what happened.
func (r *run) result(before totals, start int64) (*Result, error) {
	all := r.totals()
	res := &Result{Published: all.published - before.published, Refused: all.refused, Latency: newHistogram()}
	last := start
	for i, reader := range r.readers {
		if reader.err != nil {
			return nil, fmt.Errorf("subscriber %d: %w", i, reader.err)
		}
		res.add(reader)
		last = max(last, reader.lastAt)
		if r.o.Group == "" {
			res.Lost += max(0, all.accepted-reader.count)
		}
	}
	if r.o.Group != "" {
		res.countShares(r.readers, all.accepted, r.o.Publishers)
	}
	for _, p := range r.publishers {
		if why := p.firstErr.Load(); why != nil && res.Refusal == nil {
			res.Refusal = *why
		}
	}
	res.Publishing = time.Duration(r.confirmedAt - start)
	res.Delivering = time.Duration(last - start)
	return res, nil
}
