package core

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// RunWeight is how many bytes a run takes beside its messages while its batch is being published, the caller's own bookkeeping included.
const RunWeight = 256

// usualRuns of a batch are not accounted for.
const usualRuns = 256

// frameGrace bounds how long a publisher without patience may be held back for one batch: only when that batch alone,
// being larger than a queue, fills the queue of a subscription that was keeping up. Busy is not slow.
const frameGrace = 100 * time.Millisecond

// Publish queues a batch at everybody who subscribes to its topics and fills in the results of its runs. It is safe for
// concurrent use; batches that follow each other are received in that order.
//
// It blocks only as far as MaxWait allows. The error is ErrDraining or the context's, in which case
// the runs tell what was accepted before; everything else is told run by run.
func (b *Broker) Publish(ctx context.Context, batch *Batch) error {
	b.gate.RLock()
	defer b.gate.RUnlock()
	if b.isDraining() {
		b.refuse(batch.Runs, ErrDraining)
		return ErrDraining
	}
	f, err := b.admit(ctx, batch)
	if err != nil {
		b.refuse(batch.Runs, err)
		if errors.Is(err, ErrMemory) {
			return nil
		}
		return err
	}
	if batch.Admitted != nil {
		batch.Admitted()
	}
	// Runs that outweigh the batch itself are accounted for while they are there, which may be as long as the publisher waits.
	if weight := int64(len(batch.Runs)-usualRuns) * RunWeight; weight > 0 {
		b.memory.take(weight)
		defer b.memory.free(weight)
	}
	p := b.newPublication(f, batch)
	err = b.publishRuns(ctx, p, batch.Runs)
	p.serve()
	crowded := p.crowded
	p.discard()
	if f != nil {
		f.release()
	}
	if crowded {
		// Nobody waits for a receiver here, but one that is ready to run shall get the processor before its queue is
		// filled further by frames that have arrived already.
		runtime.Gosched()
	}
	return err
}

// refuse marks all runs that the caller has not refused already.
func (b *Broker) refuse(runs []Run, err error) {
	for i := range runs {
		r := &runs[i]
		r.Accepted, r.Unrouted, r.Receivers = 0, 0, 0
		if r.Err == nil {
			r.Err = err
		}
		b.CountRefused(r.Err, r.Count)
	}
}

func (b *Broker) publishRuns(ctx context.Context, p *publication, runs []Run) error {
	var accepted, bytes, unrouted int
	var failed error
	for i := range runs {
		r := &runs[i]
		r.Accepted, r.Unrouted, r.Receivers = 0, 0, 0
		if r.Err == nil && failed != nil {
			r.Err = failed
		}
		if r.Err == nil {
			bytes += b.publishRun(ctx, p, r)
			switch {
			case errors.Is(r.Err, ErrDraining):
				failed = r.Err
			case r.Err != nil:
				failed = ctx.Err() // whatever this one was refused for
			}
		}
		accepted += r.Accepted
		unrouted += r.Unrouted
		if r.Accepted < r.Count {
			b.CountRefused(r.Err, r.Count-r.Accepted)
		}
	}
	c := &b.counters
	c.published.Add(uint64(accepted))
	c.publishedBytes.Add(uint64(bytes))
	if unrouted > 0 {
		c.unrouted.Add(uint64(unrouted))
	}
	if p.matched > 0 {
		c.matched.Add(uint64(p.matched))
	}
	return failed
}

// publishRun queues one run, in pieces when receivers have no room for all of it, and returns the bytes accepted.
func (b *Broker) publishRun(ctx context.Context, p *publication, r *Run) (bytes int) {
	start := r.Start
	p.waited = 0
	for r.Accepted < r.Count {
		piece, blocked, err := b.fanOut(p, r, start)
		for i, s := range p.ended {
			b.forget(s)
			p.ended[i] = nil
		}
		p.ended = p.ended[:0]
		switch {
		case blocked != nil:
			p.giveBackRoom(b)
			p.serve()
			err = b.await(ctx, p, blocked)
		case p.short > 0:
			p.serve()
			err = b.findRoom(ctx, p)
		}
		if err != nil {
			r.Err = err
			break
		}
		start += piece.size
		r.Accepted += piece.count
		if piece.count == 0 {
			continue
		}
		p.waited = 0
		r.Receivers = piece.receivers
		if piece.matched == 0 {
			r.Unrouted += piece.count
		}
	}
	p.giveBackRoom(b)
	return start - r.Start
}

// findRoom makes room for what p is short of. For that it waits in vain only once. For the broker's own nobody has to go: it may tell of such an end.
func (b *Broker) findRoom(ctx context.Context, p *publication) error {
	if p.own {
		p.short = 0
		return ErrMemory
	}
	patience := p.patience - p.waited
	if p.vain {
		patience = 0
	}
	begun := b.clock.Now()
	err := b.makeRoom(ctx, p.short, patience)
	if p.patience > 0 {
		p.waited += b.clock.Now().Sub(begun)
	}
	if err == nil {
		p.room += p.short
	}
	p.vain = p.vain || err != nil
	p.short = 0
	return err
}

// piece is as much of a run as was queued in one go.
type piece struct {
	count, size int // records, and their bytes
	receivers   int // who took them
	matched     int // the same, and those who have counted them as dropped or lost
}

// fanOut queues a piece of what is left of a run at every receiver of its topic, or nothing at any: as many of the records
// as all of them have room for. Where one has none, and may be waited for, its intake is returned as blocked; where one
// refuses, an error. Where the broker has no room for what groups keep of them, p.short tells.
//
// Pieces are decided before anything is queued, under the topic's lock, so that all subscriptions see the topic's
// messages in one order whoever else is publishing.
func (b *Broker) fanOut(p *publication, r *Run, start int) (_ piece, blocked *intake, err error) {
	n, end := r.Count-r.Accepted, r.End
	sh := b.router.shardOf(r.Topic)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	rt := b.router.lookup(sh, r.Topic)
	if p.frame == nil {
		if len(rt.receivers) > 0 {
			return piece{}, nil, ErrMemory
		}
		done := piece{count: n, size: end - start}
		sh.count(rt, r.Topic, p, done)
		return done, nil, nil
	}
	for {
		k, blocked, err := p.reserve(rt.receivers, p.frame.data[start:end], n)
		if k == 0 {
			return piece{}, blocked, err
		}
		if k == n {
			break
		}
		_, length := measure(b.encoding, p.frame.data[start:end], k, int64(end-start))
		n, end = k, start+int(length)
	}
	if !p.book(b, rt.groups, r.Keyed, p.frame.data[start:end], n) {
		p.unreserve(rt.receivers, int64(n), int64(end-start))
		return piece{}, nil, nil
	}
	done := piece{count: n, size: end - start}
	for i, receiver := range rt.receivers {
		switch receiver.commit(p, r, uint32(start), uint32(end), n, p.granted[i]) {
		case taken:
			done.receivers++
			done.matched++
		case discarded:
			done.matched++
		}
	}
	sh.count(rt, r.Topic, p, done)
	return done, nil, nil
}

// await holds the publisher back until a receiver has room again, has ended, or has had none for as long as the publisher is
// willing to wait, for this one or others before it.
func (b *Broker) await(ctx context.Context, p *publication, in *intake) error {
	patience := p.grace
	if p.patience > 0 {
		patience = p.patience - p.waited
	}
	room := in.awaitRoom(p)
	if room == nil {
		return nil
	}
	draining := b.draining
	if p.own {
		draining = nil
	}
	begun := b.clock.Now()
	expired := make(chan struct{})
	stop := b.clock.AfterFunc(patience, func() { close(expired) })
	defer stop()
	var err error
	select {
	case <-room:
	case <-expired:
	case <-ctx.Done():
		err = ctx.Err()
	case <-draining:
		err = ErrDraining
	}
	if waited := b.clock.Now().Sub(begun); p.patience > 0 {
		p.waited += waited
	} else {
		p.grace -= waited
	}
	in.endWait(p, room)
	return err
}
