package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// publishCall is one stream of a Publisher.
type publishCall struct {
	grpc.ClientStream
	cancel context.CancelFunc
	base   uint64 // position of the last message before the first of this stream
	opened time.Time
}

// open opens a stream that ends with life, and waits until the broker has answered on it: an empty frame is confirmed like
// any other. opening bounds the wait. With wait it also waits for the connection.
func (p *Publisher) open(life, opening context.Context, wait bool) (*publishCall, error) {
	ctx, cancel := context.WithCancel(life)
	inTime := context.AfterFunc(opening, cancel)
	stream, err := p.client.broker.PublishStream(ctx, grpc.WaitForReady(wait))
	if err == nil {
		err = confirmOpen(stream)
	}
	if !inTime() {
		err = context.Cause(opening)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &publishCall{ClientStream: stream, cancel: cancel, opened: time.Now()}, nil
}

func confirmOpen(stream grpc.ClientStream) error {
	err := stream.SendMsg(&rawFrame{})
	if err == nil || errors.Is(err, io.EOF) { // why it failed comes from receiving
		err = stream.RecvMsg(new(tinybrokerv1.PublishStreamResponse))
	}
	return endedEarly(err)
}

// endedEarly says in place of io.EOF that the broker has ended a stream it should not have.
func endedEarly(err error) error {
	if errors.Is(err, io.EOF) {
		return errStreamEnded
	}
	return err
}

// run keeps the publisher going from its first stream to its end.
func (p *Publisher) run(life context.Context, call *publishCall) {
	defer close(p.done)
	defer p.cancel()
	retry := retrial{client: p.client}
	for {
		err := p.serve(call)
		retry.lived(time.Since(call.opened))
		if p.over() {
			return
		}
		open := func(opening context.Context) (err error) {
			call, err = p.open(life, opening, true)
			return err
		}
		if p.skipTooLarge(err) {
			err = open(life)
		}
		if err != nil {
			err = retry.run(life, err, open)
		}
		if err != nil {
			p.fail(err)
			return
		}
	}
}

// over reports whether nothing is left to do.
func (p *Publisher) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed != nil || (p.closing && p.window.idle())
}

// serve sends and receives on one stream until it ends, and returns why.
func (p *Publisher) serve(call *publishCall) error {
	p.mu.Lock()
	p.window.restart()
	call.base = p.window.confirmed
	p.stream++
	p.call, p.connected = call, true
	stream := p.stream
	p.mu.Unlock()

	var sender sync.WaitGroup
	sender.Go(func() { p.send(call, stream) })
	err := p.receive(call)
	call.cancel()
	p.mu.Lock()
	p.stream++
	p.connected = false
	p.work.Broadcast()
	p.mu.Unlock()
	sender.Wait()
	return err
}

// send is the stream's one writer.
func (p *Publisher) send(call *publishCall, stream int) {
	for {
		data, isLast := p.nextFrame(stream)
		if isLast {
			_ = call.CloseSend() // it never fails
		}
		// On a stream that has ended somebody may still be in the middle of sendLocked: it is left alone.
		if data == nil || call.SendMsg(frameOfBytes(data)) != nil {
			return // receive gets to know why
		}
	}
}

// sendLocked has what is new sent, given that the sender waits. When little is on its way, whoever published gives it to the stream, with
// the mutex released: a message alone then need not wait until the sender's turn to run comes. The stream takes so
// little at once, it never blocks.
func (p *Publisher) sendLocked() {
	if p.direct || !p.connected || !p.window.light() {
		p.work.Signal()
		return
	}
	data, call := p.window.next(), p.call
	p.direct = true
	p.mu.Unlock()
	_ = call.SendMsg(frameOfBytes(data)) // receive gets to know why
	p.mu.Lock()
	p.direct = false
	if !p.window.allSent() || p.closing || p.call != call {
		p.work.Broadcast()
	}
}

// nextFrame waits for something to send; nil: nothing more will come on this stream, and isLast if that is since the publisher is being closed.
func (p *Publisher) nextFrame(stream int) (data []byte, isLast bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stream == stream {
		if !p.direct {
			if data := p.window.next(); data != nil {
				return data, false
			}
			if p.closing {
				return nil, true
			}
		}
		p.waiting = true
		p.work.Wait()
		p.waiting = false
	}
	return nil, false
}

// receive handles receipts until the stream ends, and returns why it did.
func (p *Publisher) receive(call *publishCall) error {
	for {
		var response tinybrokerv1.PublishStreamResponse
		if err := call.RecvMsg(&response); err != nil {
			return endedEarly(err)
		}
		p.confirm(call.base, &response)
	}
}

// confirm passes on what a response says and moves the window.
func (p *Publisher) confirm(base uint64, response *tinybrokerv1.PublishStreamResponse) {
	p.mu.Lock()
	first := p.window.confirmed + 1
	last := min(base+response.GetAcceptedThrough(), p.window.published)
	p.mu.Unlock()
	if p.options.OnReceipt != nil {
		for _, r := range receipts(base, first, last, response) {
			p.options.OnReceipt(r)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if last >= first && p.failed == nil {
		p.window.confirm(last)
		p.moveLocked()
	}
}

// receipts parts the positions from first to last into those accepted and those refused.
func receipts(base, first, last uint64, response *tinybrokerv1.PublishStreamResponse) (rs []Receipt) {
	next := first
	for _, f := range response.GetFailures() {
		from, to := base+f.GetPosition(), base+f.GetPosition()+max(1, f.GetCount())-1
		if from < next || to > last {
			continue // no failure of these messages
		}
		if from > next {
			rs = append(rs, Receipt{First: next, Last: from - 1})
		}
		rs = append(rs, Receipt{First: from, Last: to, Err: failureError(f)})
		next = to + 1
	}
	if next <= last {
		rs = append(rs, Receipt{First: next, Last: last})
	}
	for i := len(rs) - 1; i >= 0 && response.GetUnrouted() > 0; i-- {
		if rs[i].Err == nil {
			rs[i].Unrouted = response.GetUnrouted()
			break
		}
	}
	return rs
}

// skipTooLarge gives up on one message when the broker has ended the stream because of it: what is too large for the
// transport has no receipt. The broker has confirmed all before it, and it travels alone.
func (p *Publisher) skipTooLarge(err error) bool {
	err = fromStatus(err)
	if !errors.Is(err, core.ErrMessageTooLarge) {
		return false
	}
	p.mu.Lock()
	alone := len(p.window.frames) > 0 && p.window.frames[0].count == 1
	position := p.window.confirmed + 1
	p.mu.Unlock()
	if !alone {
		return false
	}
	if p.options.OnReceipt != nil {
		p.options.OnReceipt(Receipt{First: position, Last: position, Err: err})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.window.confirm(position)
	p.moveLocked()
	return true
}
