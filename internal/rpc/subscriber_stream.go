package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// subscribeCall is one stream of a subscription.
type subscribeCall struct {
	stream   grpc.ClientStream
	cancel   context.CancelFunc
	member   *membership // nil: broadcast
	opened   *tinybrokerv1.Opened
	openedAt time.Time
	last     uint64 // delivery number of the last message
}

// acks reports whether the broker wants to know what became of each delivery.
func (c *subscribeCall) acks() bool { return c.member != nil && c.member.acks }

// passesOver gives a delivery back unhandled if one with the same key, which failed, is to come before it, and reports whether it does.
func (c *subscribeCall) passesOver(d *Delivery) bool {
	return c.acks() && d.Key != "" && c.member.passOver(d)
}

// hung reports whether a member has left by itself, since a handler did not return in time.
func (c *subscribeCall) hung() bool { return c.member != nil && c.member.hung() }

// end ends the stream if it has not ended.
func (c *subscribeCall) end() {
	c.cancel()
	if c.member != nil {
		c.member.end()
	}
}

// open opens a stream and waits until the subscription is registered. opening bounds the wait. With wait it also waits for the
// connection. The stream ends with the subscriber's context; that of a group's member outlives it, to say goodbye.
func (s *subscriber) open(opening context.Context, wait bool) (*subscribeCall, error) {
	life := s.ctx
	if s.options.Group != "" {
		life = context.WithoutCancel(life)
	}
	ctx, cancel := context.WithCancel(life)
	inTime := context.AfterFunc(opening, cancel)
	call := &subscribeCall{cancel: cancel}
	stream, err := s.client.broker.Subscribe(ctx, grpc.WaitForReady(wait))
	if err == nil {
		call.stream = stream
		err = s.register(call)
	}
	if !inTime() && opening.Err() != nil {
		err = context.Cause(opening)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	call.openedAt = time.Now()
	if s.options.Group != "" {
		call.member = newMembership(s.ctx, stream, cancel, call.opened, &s.options)
	}
	return call, nil
}

// register sends `open` and reads `opened`.
func (s *subscriber) register(call *subscribeCall) error {
	err := call.stream.SendMsg(subscribeRequest(&s.options))
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: why it failed comes from receiving
		return err
	}
	if s.options.Group == "" {
		// A broadcast subscription has nothing more to say.
		if err := call.stream.CloseSend(); err != nil {
			return err
		}
	}
	var first tinybrokerv1.SubscribeResponse
	if err := call.stream.RecvMsg(&first); err != nil {
		return endedEarly(err)
	}
	if first.GetOpened() == nil || len(first.GetMessages()) > 0 {
		return fmt.Errorf("%w: the first frame of a subscription is not `opened`", core.ErrProtocol)
	}
	call.opened = first.GetOpened()
	if s.options.Group != "" && call.opened.GetMode() != tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE {
		// Every member would handle every message.
		return fmt.Errorf("%w: the broker has opened no member of a group", core.ErrProtocol)
	}
	return nil
}

// receive hands on what comes until the stream ends, and returns why it did: a *core.EndedError or an error of the stream.
func (s *subscriber) receive(call *subscribeCall) error {
	var closed *core.EndedError
	next := s.reader(call)
	for {
		frame, err := next()
		if err != nil {
			return s.ended(call, closed, err)
		}
		if err := s.handleFrame(call, frame); err != nil {
			s.stop(err)
			return err
		}
		if s.frames.closed != nil {
			closed = &core.EndedError{Ending: endingFromProto(s.frames.closed)}
		}
	}
}

// reader returns a function that reads the next frame. It is overwritten with the one after that, unless several handlers use it.
func (s *subscriber) reader(call *subscribeCall) func() ([]byte, error) {
	if s.pool != nil {
		return func() ([]byte, error) {
			var frame rawFrame
			err := call.stream.RecvMsg(&frame)
			return frame.data, err
		}
	}
	var frame reusedFrame
	return func() ([]byte, error) {
		err := call.stream.RecvMsg(&frame)
		return frame.data, err
	}
}

// handleFrame hands out the messages of a frame. An error: the broker does not keep to the protocol.
func (s *subscriber) handleFrame(call *subscribeCall, frame []byte) error {
	if err := s.frames.reset(frame); err != nil {
		return err
	}
	if l := s.frames.lagging; l != nil && s.options.OnLagging != nil {
		s.options.OnLagging(Lagging{Queued: l.GetQueued(), QueuedBytes: l.GetQueuedBytes(), Capacity: l.GetCapacity()})
	}
	if err := s.frames.checkSequence(call.last); err != nil {
		return err
	}
	call.last += uint64(s.frames.count)
	if s.halted() {
		return nil
	}
	if call.acks() {
		call.member.received(s.frames.count)
	}
	if s.pool != nil {
		return s.distribute(call)
	}
	for {
		ok, err := s.frames.next(&s.delivery)
		if !ok || err != nil {
			s.flush(call)
			return err
		}
		if !s.handleOne(call) {
			return nil
		}
	}
}

// handleOne hands out a delivery and reports whether another one may follow.
func (s *subscriber) handleOne(call *subscribeCall) bool {
	d := &s.delivery
	if s.options.Flush == nil && !call.acks() {
		// Most messages by far come this way.
		err := s.handle(d)
		return err == nil || s.settle(call, d, err)
	}
	if call.passesOver(d) {
		return true
	}
	if call.acks() && (s.halted() || !call.member.begin(d.Sequence)) {
		s.flush(call)
		return false
	}
	result := s.handle(d)
	if s.options.Flush == nil {
		return s.settle(call, d, result)
	}
	switch v := judge(result, call.acks()); {
	case v.nack == nil && !v.stop:
		s.unflushed = true
		return true
	case v.nack == nil:
		s.unflushed = true
		s.flush(call)
		s.stop(nil)
		return false
	}
	goesOn := s.settle(call, d, result)
	if !goesOn {
		s.flush(call)
	}
	return goesOn
}

// flush settles what was handled and not flushed.
func (s *subscriber) flush(call *subscribeCall) {
	if !s.unflushed {
		return
	}
	s.unflushed = false
	v := judge(s.options.Flush(), call.acks())
	if call.acks() {
		call.member.doneAll(v)
	}
	if v.stop {
		s.stop(v.err)
	}
}

// distribute hands out the messages of a frame to several handlers.
func (s *subscriber) distribute(call *subscribeCall) error {
	for {
		j := &job{call: call}
		ok, err := s.frames.next(&j.Delivery)
		if !ok || err != nil {
			return err
		}
		s.frames.headers = nil // they are the delivery's now
		j.More = false
		s.pool.add(j)
	}
}

// handleJob is handleOne for one of several handlers.
func (s *subscriber) handleJob(j *job) {
	if j.call.passesOver(&j.Delivery) || s.halted() || j.call.acks() && !j.call.member.begin(j.Sequence) {
		return
	}
	s.settle(j.call, &j.Delivery, s.handle(&j.Delivery))
}

// settle does what a handler's result asks for, and reports whether the subscription goes on.
func (s *subscriber) settle(call *subscribeCall, d *Delivery, result error) bool {
	v := judge(result, call.acks())
	if call.acks() {
		call.member.done(d, v, orderMatters(d, v.nack, call.opened.GetMaxAttempts()))
	}
	if v.stop {
		s.stop(v.err)
	}
	return !v.stop
}

// ended returns why the stream is over: what the `closed` frame says or, when that could not be written, the
// trailers. A broker that goes away counts as a lost connection.
func (s *subscriber) ended(call *subscribeCall, closed *core.EndedError, err error) error {
	if closed == nil {
		closed = endingFromTrailer(call)
	}
	if closed != nil {
		s.tellDropped(closed.Ending)
	}
	if refused, ok := errors.AsType[*Error](fromStatus(err)); ok && closed != nil && closed.Reason == core.EndRevoked && refused.cause != nil {
		closed.Text = refused.Error() // the frame says only that it was revoked, the status why
	}
	if closed != nil && closed.Reason != core.EndShuttingDown {
		return closed
	}
	return endedEarly(err)
}

func endingFromTrailer(call *subscribeCall) *core.EndedError {
	trailer := call.stream.Trailer()
	names := trailer.Get(closeReasonTrailer)
	if len(names) == 0 {
		return nil
	}
	reason := endReason(tinybrokerv1.CloseReason(tinybrokerv1.CloseReason_value[names[0]]))
	e := core.Ending{Reason: reason, Text: reason.String(), LastSequence: call.last, Lived: time.Since(call.openedAt)}
	e.Lost = countFromTrailer(trailer, closeLostTrailer)
	e.Dropped = countFromTrailer(trailer, closeDroppedTrailer)
	return &core.EndedError{Ending: e}
}

// countFromTrailer returns 0 when the broker says nothing, or nonsense.
func countFromTrailer(trailer metadata.MD, name string) uint64 {
	var n uint64
	if values := trailer.Get(name); len(values) > 0 {
		n, _ = strconv.ParseUint(values[0], 10, 64)
	}
	return n
}
