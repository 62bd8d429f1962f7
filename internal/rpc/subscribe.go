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

// The trailers of a subscription that the broker ended. They repeat the `closed` frame, for a client that did not
// read on in time for that frame to be written.
const (
	closeReasonTrailer  = "tinybroker-close-reason"
	closeLostTrailer    = "tinybroker-close-lost"
	closeDroppedTrailer = "tinybroker-close-dropped"
)

type subscribeStream = grpc.BidiStreamingServer[tinybrokerv1.SubscribeRequest, tinybrokerv1.SubscribeResponse]

// Subscribe implements BrokerServiceServer.
//
// Three loops with one owner each: this handler decides when the stream ends, one goroutine reads what the
// subscriber says, and one sends. Sending may block for as long as the subscriber does not read, and only the return of
// the handler interrupts it.
func (s *brokerService) Subscribe(stream subscribeStream) error {
	c, err := s.begin(stream)
	if err != nil {
		return err
	}
	defer c.end()
	return c.decide()
}

// subscriptionCall is a Subscribe call that was opened.
type subscriptionCall struct {
	*brokerService
	stream   subscribeStream
	sub      consumer
	sender   *sender
	sent     chan error    // how sending has ended
	heard    <-chan error  // how listening has ended
	returned chan struct{} // closed when the handler returns
	refused  <-chan struct{}
	revoked  <-chan struct{}
}

// begin opens the subscription and starts its loops.
func (s *brokerService) begin(stream subscribeStream) (*subscriptionCall, error) {
	ctx := stream.Context()
	connOf(ctx).use()
	sub, err := s.open(stream)
	if err != nil {
		return nil, err
	}
	member, _ := sub.(*core.Member)
	c := &subscriptionCall{
		brokerService: s,
		stream:        stream,
		sub:           sub,
		sender:        &sender{sub: sub, stream: stream, pending: &pendingFrames{member: member}},
		sent:          make(chan error, 1),
		heard:         s.server.start(func() error { return listen(stream, sub) }),
		returned:      make(chan struct{}),
		refused:       inCallOf(ctx).refusal(),
		revoked:       sessionOf(ctx).ended(),
	}
	if broadcast, ok := sub.(*core.Subscription); ok {
		broadcast.Direct(func() bool { return c.sender.sendDirect(broadcast) })
	}
	s.server.loops.Go(c.send)
	return c, nil
}

func (c *subscriptionCall) send() {
	c.sent <- c.server.guarded(c.sender.run)
	<-c.returned // only now is it settled how the subscription has ended, and what was lost with it
	c.server.logEnding(c.sub, sessionOf(c.stream.Context()).name())
}

// decide waits for what ends the stream.
func (c *subscriptionCall) decide() error {
	for {
		select {
		case err := <-c.heard:
			if err != nil {
				return err
			}
			c.heard = nil // half-closed: the subscription goes on
		case <-c.refused:
			return giveUp(c.stream.Context(), c.sender.pending)
		case err := <-c.sent:
			return c.sentAll(err)
		case <-c.revoked:
			c.revoked = nil
			c.sub.Revoke()
		case <-c.sub.Done():
			return c.sentAll(c.awaitLastFrame(c.stream.Context(), c.sent))
		}
	}
}

// sentAll returns what the handler is to return once the sender has ended with err.
func (c *subscriptionCall) sentAll(err error) error {
	if err != nil {
		return err
	}
	return closed(c.stream, c.sub, c.sender)
}

// end is for the return of the handler.
func (c *subscriptionCall) end() {
	c.sub.Close()
	c.server.linger(c.stream.Context(), c.sender)
	close(c.returned)
}

// open reads the first request, registers the subscription and says so.
func (s *brokerService) open(stream subscribeStream) (consumer, error) {
	request, err := s.firstRequest(stream)
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the request side was closed before `open`", core.ErrProtocol)
	}
	if err != nil {
		return nil, err
	}
	// What this takes of the stack stays allocated with the goroutine. The handler's lives as long as the subscription does.
	var sub consumer
	err = <-s.server.start(func() (err error) {
		sub, err = s.register(stream, request)
		return err
	})
	return sub, err
}

// register registers the subscription that its first request asks for, and says so.
func (s *brokerService) register(stream subscribeStream, request *tinybrokerv1.SubscribeRequest) (consumer, error) {
	open := request.GetOpen()
	if open == nil {
		return nil, fmt.Errorf("%w: the first request must be `open`", core.ErrProtocol)
	}
	// Compressing would make a copy of every message for every subscription, and nobody would account for it.
	if err := sendPlain(stream.Context()); err != nil {
		return nil, err
	}
	access, err := sessionOf(stream.Context()).receiving(open.GetConsumerGroup())
	if err != nil {
		return nil, err
	}
	sub, err := join(s.server.broker, open, peerOf(stream.Context()), access)
	if err != nil {
		return nil, err
	}
	connOf(stream.Context()).named(sub.Client())
	if err := stream.Send(openedResponse(s.server.broker, sub)); err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// firstRequest waits for the first request, for some time, or until the broker drains.
func (s *brokerService) firstRequest(stream subscribeStream) (*tinybrokerv1.SubscribeRequest, error) {
	session := sessionOf(stream.Context())
	var request *tinybrokerv1.SubscribeRequest
	received := s.server.start(func() error {
		frame, err := receiveRequest(stream, maxSubscriberRequest)
		if err == nil {
			request, _, err = readRequest(frame)
		}
		return err
	})
	timeout := time.NewTimer(s.server.options.times.open)
	defer timeout.Stop()
	select {
	case err := <-received:
		return request, err
	case <-timeout.C:
		return nil, fmt.Errorf("%w: no `open` within %s", core.ErrProtocol, s.server.options.times.open)
	case <-inCallOf(stream.Context()).refusal():
		return nil, errInbound
	case <-s.server.broker.Draining():
		return nil, core.ErrDraining
	case <-session.ended():
		return nil, session.why()
	}
}

// listen reads what the subscriber says after `open`. Nil: it has nothing more to say, which ends the membership of one
// that has left, and nothing else.
func listen(stream subscribeStream, sub consumer) error {
	m, isMember := sub.(*core.Member)
	left := false
	for {
		frame, err := receiveRequest(stream, maxSubscriberRequest)
		if errors.Is(err, io.EOF) {
			if isMember && left {
				m.Left()
			}
			return nil
		}
		if err != nil {
			return err
		}
		request, ranges, err := readRequest(frame)
		if err != nil {
			return err
		}
		if isMember {
			err = answer(m, request, ranges)
		} else {
			err = answerBroadcast(sub, request)
		}
		if err != nil {
			return err
		}
		left = left || request.GetLeave() != nil
	}
}

// awaitLastFrame gives the sender time to get rid of the frame under way and to write `closed` after it. A subscriber
// that takes nothing for that long gets the trailers only, when it reads on. The error is the sender's.
func (s *brokerService) awaitLastFrame(ctx context.Context, sent <-chan error) error {
	timeout := time.NewTimer(s.server.broker.Options().SendTimeout)
	defer timeout.Stop()
	select {
	case err := <-sent:
		return err
	case <-timeout.C:
	case <-ctx.Done():
	}
	return nil
}

// closed ends the stream of an ended subscription.
func closed(stream subscribeStream, sub consumer, sender *sender) error {
	underWay, dropped := sender.giveUp()
	if _, isMember := sub.(*core.Member); isMember {
		underWay = 0 // has gone back to the group
	}
	ending := sub.Ending()
	if ending.Reason == core.EndNone || ending.Reason == core.EndClosed {
		return stream.Context().Err()
	}
	stream.SetTrailer(metadata.Pairs(
		closeReasonTrailer, closeReason(ending.Reason).String(),
		closeLostTrailer, strconv.FormatUint(ending.Lost+uint64(underWay), 10),
		closeDroppedTrailer, strconv.FormatUint(ending.Dropped+dropped, 10),
	))
	switch ending.Reason {
	case core.EndShuttingDown:
		return core.ErrDraining
	case core.EndRevoked:
		return sessionOf(stream.Context()).why()
	}
	return nil
}

// linger gives the client of a stream that ends some time to take what the transport still holds for it. Then the
// connection is closed: a stream that is never read would else keep its frames for as long as the connection lives, and gRPC
// offers no way to reset it alone.
func (s *Server) linger(ctx context.Context, sender *sender) {
	pending := sender.pending
	if pending.count() == 0 {
		return
	}
	conn := connOf(ctx)
	if ctx.Err() != nil || conn == nil || !conn.keep(pending) {
		pending.letGo() // the client has ended the stream
		return
	}
	// Few streams are in that state for longer than a moment. The function keeps no more of them than it needs.
	id, client := sender.sub.ID(), sender.sub.Client()
	time.AfterFunc(s.options.times.linger, func() {
		if pending.count() > 0 && conn.open() {
			if s.lines.unread.allow(s.log) {
				s.log.Warn("connection closed: an ended subscription's stream was not read", "peer", conn.RemoteAddr().String(),
					"subscription", id, "client", client)
			}
			_ = conn.Close()
		}
		conn.forget(pending)
	})
}
