package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

const defaultMaxInFlight = 10_000

// PublisherOptions say how a Publisher works. The zero value is ready for use.
type PublisherOptions struct {
	// MaxWait is how long the broker may hold the publisher back for receivers that are nearly full. 0: not at all.
	MaxWait time.Duration
	// MaxInFlight is how many messages may be unconfirmed before Publish blocks. 0: 10 000.
	MaxInFlight int
	// OnReceipt is told what became of the messages, in the order of their positions, by one goroutine. The window moves on
	// only after it has returned: it must not call Publish, Flush or Close. May be nil.
	OnReceipt func(Receipt)
}

// Receipt says what became of neighbouring messages.
type Receipt struct {
	// First and Last are positions: the n-th message given to Publish has position n.
	First, Last uint64
	// Unrouted is how many messages, of these or of those since the receipt before, had no receiver.
	Unrouted uint64
	// Err is nil when the messages were accepted, else why the broker refused them.
	Err error
}

// UnconfirmedError says that a Publisher has given up.
type UnconfirmedError struct {
	// First and Last are the positions of the messages whose fate is not known: the broker may have some of them. When
	// every message was confirmed, First is Last+1.
	First, Last uint64
	// Err is why.
	Err error
}

// Error names the cause and the first unconfirmed position.
func (e *UnconfirmedError) Error() string {
	switch {
	case e.First > e.Last:
		return e.Err.Error()
	case e.First == e.Last:
		return fmt.Sprintf("%v; message %d is unconfirmed", e.Err, e.First)
	}
	return fmt.Sprintf("%v; messages %d to %d are unconfirmed", e.Err, e.First, e.Last)
}

// Unwrap returns the cause.
func (e *UnconfirmedError) Unwrap() error { return e.Err }

// ErrPublisherClosed is what Publish returns after Close.
var ErrPublisherClosed = errors.New("publisher is closed")

// Publisher hands over messages on one stream, in order. What is published while a frame is on its way goes into the next
// one; a single message goes at once. When the connection is lost, it is made again and
// everything unconfirmed is sent again, so a message may arrive twice. Safe for concurrent use.
type Publisher struct {
	client  *Client
	options PublisherOptions
	cancel  context.CancelFunc // ends the streams
	done    chan struct{}      // closed when no goroutine is left

	mu        sync.Mutex
	work      *sync.Cond // signalled when the sender may have something to do
	waiting   bool       // the sender waits for work
	call      *publishCall
	direct    bool // sendLocked is giving a frame to the stream; nobody else may
	window    window
	moved     chan struct{} // closed when confirmed or failed changes; nil while nobody waits
	closing   bool
	connected bool
	failed    error // why it has given up
	stream    int   // counts streams; a sender of an earlier one ends
}

// Publisher opens a stream to publish on. ctx is for the opening alone. Close ends the publisher.
func (c *Client) Publisher(ctx context.Context, o PublisherOptions) (*Publisher, error) {
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = defaultMaxInFlight
	}
	life, cancel := context.WithCancel(c.ctx)
	p := &Publisher{client: c, options: o, cancel: cancel, done: make(chan struct{})}
	p.work = sync.NewCond(&p.mu)
	if o.MaxWait > 0 {
		p.window.prefix = appendPatience(nil, fieldFrameMaxWait, o.MaxWait)
	}
	var stream *publishCall
	err := c.openFirst(ctx, func(wait bool) (err error) {
		stream, err = p.open(life, ctx, wait)
		return err
	})
	if err != nil {
		cancel()
		return nil, c.callError(ctx, err)
	}
	c.publishers.Go(func() { p.run(life, stream) })
	return p, nil
}

// Publish encodes m, which may be changed again when it returns, and returns its position. It blocks while the window
// is full, until ctx ends. An error means that m was not taken: the context's, ErrPublisherClosed, or an
// *UnconfirmedError once the publisher has given up.
func (p *Publisher) Publish(ctx context.Context, m *core.Message) (position uint64, err error) {
	p.mu.Lock()
	if p.failed != nil || p.closing || p.window.full(p.options.MaxInFlight) {
		if err := p.awaitRoomLocked(ctx); err != nil {
			p.mu.Unlock()
			return 0, err
		}
	}
	position = p.window.add(m)
	if p.waiting {
		p.sendLocked()
	}
	p.mu.Unlock()
	return position, nil
}

// awaitRoomLocked waits until the window has room for a message.
func (p *Publisher) awaitRoomLocked(ctx context.Context) error {
	for {
		if p.failed != nil {
			return p.failed
		}
		if p.closing {
			return ErrPublisherClosed
		}
		if !p.window.full(p.options.MaxInFlight) {
			return nil
		}
		if err := p.awaitMoveLocked(ctx); err != nil {
			return err
		}
	}
}

// Flush waits until everything published before is dealt with. An error is the context's, or an *UnconfirmedError.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.window.published
	for p.window.confirmed < last {
		if p.failed != nil {
			return p.failed
		}
		if err := p.awaitMoveLocked(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Done is closed when the publisher has ended: it was closed, or it has given up and Close returns why.
func (p *Publisher) Done() <-chan struct{} { return p.done }

// Close waits until everything is dealt with, ends the stream and returns when no goroutine is left. When ctx ends first, it gives up.
// The error is an *UnconfirmedError if the publisher has given up, now or before. Closing again returns the same.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	p.work.Signal()
	if p.window.idle() && !p.connected {
		p.cancel() // no need to get the connection back
	}
	p.mu.Unlock()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.fail(context.Cause(ctx))
		p.cancel()
		<-p.done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// awaitMoveLocked waits, with the mutex released, until confirmed or failed changes.
func (p *Publisher) awaitMoveLocked(ctx context.Context) error {
	if p.moved == nil {
		p.moved = make(chan struct{})
	}
	moved := p.moved
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Publisher) moveLocked() {
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
}

// fail gives up for err, unless it has already, or everything is done.
func (p *Publisher) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil || (p.closing && p.window.idle()) {
		return
	}
	p.failed = &UnconfirmedError{First: p.window.confirmed + 1, Last: p.window.published, Err: err}
	p.moveLocked()
}
