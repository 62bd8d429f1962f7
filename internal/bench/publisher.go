package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// publisher is one publisher of a run.
type publisher struct {
	run    *run
	number int
	client *rpc.Client
	stream *rpc.Publisher

	message   core.Message
	sequence  uint64
	published atomic.Int64
	refused   atomic.Int64
	firstErr  atomic.Pointer[error] // why the first refused message was
}

// part is a stretch of a run: the warm-up, or what is measured.
type part struct {
	warmup   bool
	start    int64 // nanoseconds since the run began, as all times here
	end      int64 // 0: ends with the messages
	messages int64 // of all publishers together; 0: ends with the time
}

// share is how many of the part's messages are publisher n's.
func (p part) share(n, publishers int) int64 {
	share := p.messages / int64(publishers)
	if int64(n) < p.messages%int64(publishers) {
		share++
	}
	return share
}

func (r *run) openPublisher(ctx context.Context, number int) (*publisher, error) {
	client, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	p := &publisher{run: r, number: number, client: client}
	p.message.Payload = make([]byte, r.o.Size)
	p.stream, err = client.Publisher(ctx, rpc.PublisherOptions{MaxWait: r.o.MaxWait, OnReceipt: p.receipt})
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("publisher %d: %w", number, err)
	}
	return p, nil
}

func (p *publisher) receipt(receipt rpc.Receipt) {
	if receipt.Err == nil {
		return
	}
	p.refused.Add(int64(receipt.Last - receipt.First + 1))
	p.firstErr.CompareAndSwap(nil, &receipt.Err)
}

// publish sends this publisher's share of a part and waits until the broker has dealt with it.
func (p *publisher) publish(ctx context.Context, part part) error {
	var err error
	if p.run.o.Rate > 0 {
		err = p.paced(ctx, part)
	} else {
		err = p.flatOut(ctx, part)
	}
	if err == nil {
		err = p.stream.Flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("publisher %d: %w", p.number, err)
	}
	return nil
}

// clockEvery is for how many messages one look at the clock is good when there is no schedule. It is never too late a time,
// so that latency is not made to look better.
const clockEvery = 16

// flatOut sends as fast as the broker takes it.
func (p *publisher) flatOut(ctx context.Context, part part) error {
	share := part.share(p.number, p.run.o.Publishers)
	at := int64(0)
	for n := int64(0); part.messages == 0 || n < share; n++ {
		if n%clockEvery == 0 {
			at = p.run.now()
			if part.end > 0 && at >= part.end {
				return nil
			}
		}
		if err := p.send(ctx, part, at); err != nil {
			return err
		}
	}
	return nil
}

// paced sends by a schedule, and what is late at once. The time in each message is the one of the schedule: whoever waits
// behind a stall has waited.
func (p *publisher) paced(ctx context.Context, part part) error {
	share := part.share(p.number, p.run.o.Publishers)
	gap := float64(time.Second) / p.run.o.Rate
	pacer := NewPacer(ctx)
	defer pacer.Close()
	for n := int64(0); part.messages == 0 || n < share; n++ {
		turn := n*int64(p.run.o.Publishers) + int64(p.number)
		at := part.start + int64(float64(turn)*gap)
		if part.end > 0 && at >= part.end {
			return nil
		}
		if err := pacer.Rest(time.Duration(at - p.run.now())); err != nil {
			return err
		}
		if err := p.send(ctx, part, at); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) send(ctx context.Context, part part, at int64) error {
	stamp{publisher: uint16(p.number), sequence: p.sequence, at: at, warmup: part.warmup}.put(p.message.Payload)
	p.message.Topic = p.run.topics[p.sequence%uint64(len(p.run.topics))]
	if _, err := p.stream.Publish(ctx, &p.message); err != nil {
		return err
	}
	p.sequence++
	p.published.Add(1)
	return nil
}
