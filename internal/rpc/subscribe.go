package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// The trailers of a subscription that the broker ended. They repeat the `closed` frame, for a client that did not
// read on in time for that frame to be written.
const (
	closeReasonTrailer = "tinybroker-close-reason"
	closeLostTrailer   = "tinybroker-close-lost"
)

type subscribeStream = grpc.BidiStreamingServer[tinybrokerv1.SubscribeRequest, tinybrokerv1.SubscribeResponse]

// Subscribe implements BrokerServiceServer.
//
// Three loops with one owner each: this handler decides when the stream ends, one goroutine reads what the
// subscriber says, and one sends. Sending may block for as long as the subscriber does not read, and only the return of
// the handler interrupts it.
func (s *brokerService) Subscribe(stream subscribeStream) error {
	sub, err := s.open(stream)
	if err != nil {
		return err
	}
	defer sub.Close()
	sender := &sender{sub: sub, stream: stream}
	sent := make(chan error, 1)
	s.server.loops.Go(func() { sent <- s.guarded(sender.run) })
	heard := make(chan error, 1)
	s.server.loops.Go(func() { heard <- s.guarded(func() error { return listen(stream, sub) }) })
	for {
		select {
		case err := <-heard:
			if err != nil {
				return err
			}
			heard = nil // half-closed: the subscription goes on
		case err := <-sent:
			if err != nil {
				return err
			}
			return s.closed(stream, sub, sender)
		case <-sub.Done():
			s.awaitLastFrame(stream.Context(), sent)
			return s.closed(stream, sub, sender)
		}
	}
}

// open reads the first request, registers the subscription and says so.
func (s *brokerService) open(stream subscribeStream) (*core.Subscription, error) {
	request, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the request side was closed before `open`", core.ErrProtocol)
	}
	if err != nil {
		return nil, tooLarge(err)
	}
	open := request.GetOpen()
	if open == nil {
		return nil, fmt.Errorf("%w: the first request must be `open`", core.ErrProtocol)
	}
	options, err := subscribeOptions(open)
	if err != nil {
		return nil, err
	}
	options.Peer = peerOf(stream.Context())
	sub, err := s.server.broker.Subscribe(options)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(openedResponse(s.server.broker, sub)); err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// listen reads what the subscriber says after `open`. Nil: it has nothing more to say.
func listen(stream subscribeStream, sub *core.Subscription) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return tooLarge(err)
		}
		switch request.GetRequest().(type) {
		case *tinybrokerv1.SubscribeRequest_Leave:
			sub.Leave()
			return nil
		case *tinybrokerv1.SubscribeRequest_Open:
			return fmt.Errorf("%w: a second `open`", core.ErrProtocol)
		case nil:
			return fmt.Errorf("%w: an empty request", core.ErrProtocol)
		default:
			return fmt.Errorf("%w: a broadcast subscription has nothing to acknowledge", core.ErrProtocol)
		}
	}
}

// awaitLastFrame gives the sender time to get rid of the frame under way and to write `closed` after it. A subscriber
// that takes nothing for that long gets the trailers only, when it reads on.
func (s *brokerService) awaitLastFrame(ctx context.Context, sent <-chan error) {
	timeout := time.NewTimer(s.server.broker.Options().SendTimeout)
	defer timeout.Stop()
	select {
	case <-sent:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// closed ends the stream of an ended subscription.
func (s *brokerService) closed(stream subscribeStream, sub *core.Subscription, sender *sender) error {
	ending := sub.Ending()
	if ending.Reason == core.EndNone || ending.Reason == core.EndClosed {
		return stream.Context().Err()
	}
	s.logEnding(sub, ending)
	stream.SetTrailer(metadata.Pairs(
		closeReasonTrailer, closeReason(ending.Reason).String(),
		closeLostTrailer, strconv.FormatUint(ending.Lost+uint64(sender.underWay.Load()), 10),
	))
	if ending.Reason == core.EndShuttingDown {
		return core.ErrDraining
	}
	return nil
}

func (s *brokerService) logEnding(sub *core.Subscription, ending core.Ending) {
	level := slog.LevelDebug
	if ending.Reason == core.EndEvicted || ending.Reason == core.EndStalled {
		level = slog.LevelWarn
	}
	slots, _ := sub.Capacity()
	s.server.log.Log(context.Background(), level, "subscription ended", "reason", ending.Reason.String(), "why", ending.Text,
		"subscription", sub.ID(), "client", sub.Client(), "peer", sub.Peer(), "patterns", sub.Patterns(),
		"capacity", slots, "lost", ending.Lost, "lived", ending.Lived)
}

func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// sender writes a subscription's messages to its stream. It alone does.
type sender struct {
	sub    *core.Subscription
	stream grpc.ServerStream
	// underWay is how many messages are in the frame being written.
	underWay atomic.Int64
}

// takeBytes is how much of a queue goes into one frame: what the design calls about 64 KiB, and room for a publisher's
// frame of that size with its last message.
const takeBytes = 72 << 10

// run sends until the subscription ends, says so, and returns nil; or until the stream breaks.
func (s *sender) run() error {
	var d core.Delivery
	for {
		for s.sub.Take(&d, takeBytes) {
			s.underWay.Store(int64(d.Count))
			err := s.stream.SendMsg(&rawFrame{bufs: deliveryFrame(&d)})
			s.underWay.Store(0)
			s.sub.Settle(&d, err == nil)
			if err != nil {
				return err
			}
		}
		select {
		case <-s.sub.Wake():
		case <-s.sub.Done():
			return s.stream.SendMsg(closedResponse(s.sub.Ending()))
		case <-s.stream.Context().Done():
			return s.stream.Context().Err()
		}
	}
}
