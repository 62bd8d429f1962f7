package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// subscribeCall is one stream of a subscription.
type subscribeCall struct {
	stream   grpc.ClientStream
	cancel   context.CancelFunc
	opened   *tinybrokerv1.Opened
	openedAt time.Time
	last     uint64 // delivery number of the last message
}

// open opens a stream that ends with life, and waits until the subscription is registered. opening bounds the wait. With
// wait it also waits for the connection.
func (s *subscriber) open(life, opening context.Context, wait bool) (*subscribeCall, error) {
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
		call.end()
		return nil, err
	}
	call.openedAt = time.Now()
	return call, nil
}

// register sends `open` and reads `opened`.
func (s *subscriber) register(call *subscribeCall) error {
	o := &s.options
	err := call.stream.SendMsg(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{
		Open: &tinybrokerv1.OpenSubscription{
			SubscriptionId: o.ID,
			TopicPatterns:  o.Patterns,
			ClientName:     o.ClientName,
			Overflow:       tinybrokerv1.OverflowPolicy(o.Overflow),
			Capacity:       o.Capacity,
		},
	}})
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: why it failed comes from receiving
		return err
	}
	// A broadcast subscription has nothing more to say.
	if err := call.stream.CloseSend(); err != nil {
		return err
	}
	var first tinybrokerv1.SubscribeResponse
	if err := call.stream.RecvMsg(&first); err != nil {
		return endedEarly(err)
	}
	if first.GetOpened() == nil || len(first.GetMessages()) > 0 {
		return fmt.Errorf("%w: the first frame of a subscription is not `opened`", core.ErrProtocol)
	}
	call.opened = first.GetOpened()
	return nil
}

// end ends the stream if it has not ended.
func (c *subscribeCall) end() { c.cancel() }

// receive hands on what comes until the stream ends, and returns why it did: a *core.EndedError, the error of the
// handler (stopped is set), or that of the stream.
func (s *subscriber) receive(call *subscribeCall) error {
	var closed *core.EndedError
	var frame reusedFrame
	for {
		if err := call.stream.RecvMsg(&frame); err != nil {
			return s.ended(call, closed, err)
		}
		if err := s.frames.reset(frame.data); err != nil {
			s.stopped = true
			return err
		}
		if err := s.handleFrame(call); err != nil {
			s.stopped = true
			return err
		}
		if s.frames.closed != nil {
			closed = &core.EndedError{Ending: endingFromProto(s.frames.closed)}
		}
	}
}

func (s *subscriber) handleFrame(call *subscribeCall) error {
	if l := s.frames.lagging; l != nil && s.options.OnLagging != nil {
		s.options.OnLagging(Lagging{Queued: l.GetQueued(), QueuedBytes: l.GetQueuedBytes(), Capacity: l.GetCapacity()})
	}
	if err := s.frames.checkSequence(call.last); err != nil {
		return err
	}
	for {
		ok, err := s.frames.next(&s.delivery)
		if !ok || err != nil {
			return err
		}
		call.last = s.delivery.Sequence
		if err := s.handle(&s.delivery); err != nil {
			return err
		}
	}
}

// ended returns why the stream is over: what the `closed` frame says or, when that could not be written, the
// trailers. A broker that goes away counts as a lost connection.
func (s *subscriber) ended(call *subscribeCall, closed *core.EndedError, err error) error {
	if closed == nil {
		closed = endingFromTrailer(call)
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
	if lost := trailer.Get(closeLostTrailer); len(lost) > 0 {
		e.Lost, _ = strconv.ParseUint(lost[0], 10, 64) // 0 when the broker says nonsense
	}
	return &core.EndedError{Ending: e}
}

// endingFromProto is the reverse of closedToProto.
func endingFromProto(c *tinybrokerv1.Closed) core.Ending {
	return core.Ending{
		Reason:       endReason(c.GetReason()),
		Lost:         c.GetLost(),
		Text:         c.GetText(),
		LastSequence: c.GetLastSequence(),
		Lived:        c.GetLived().AsDuration(),
	}
}

// endReason is the reverse of closeReason. A reason this client does not know is an end for good.
func endReason(r tinybrokerv1.CloseReason) core.EndReason {
	for reason := core.EndNone; reason <= core.EndLeft; reason++ {
		if closeReason(reason) == r && r != tinybrokerv1.CloseReason_CLOSE_REASON_UNSPECIFIED {
			return reason
		}
	}
	return core.EndClosed
}
