package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// brokerService holds the handlers of BrokerService.
type brokerService struct {
	tinybrokerv1.UnimplementedBrokerServiceServer
	server *Server
}

// brokerServiceDesc is the generated description with one difference: Publish gets its request undecoded.
var brokerServiceDesc = func() grpc.ServiceDesc {
	d := tinybrokerv1.BrokerService_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		if d.Methods[i].MethodName == "Publish" {
			d.Methods[i].Handler = handlePublish
		}
	}
	return d
}()

func handlePublish(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	request := new(rawFrame)
	if err := decode(request); err != nil {
		return nil, tooLarge(err)
	}
	handler := func(ctx context.Context, request any) (any, error) {
		return srv.(*brokerService).publish(ctx, request.(*rawFrame).data)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: tinybrokerv1.BrokerService_Publish_FullMethodName}
	return interceptor(ctx, request, info, handler)
}

// publish is Publish for an encoded PublishRequest.
func (s *brokerService) publish(ctx context.Context, request []byte) (*tinybrokerv1.PublishResponse, error) {
	broker := s.server.broker
	record, topic, maxWait, err := publishRecord(request, broker.Options().MaxMessageSize)
	if err != nil {
		broker.CountRefused(1)
		return nil, err
	}
	runs := [1]core.Run{{Topic: topic, End: len(record), Count: 1}}
	if err := broker.Publish(ctx, &core.Batch{Data: record, Runs: runs[:], MaxWait: maxWait}); err != nil {
		return nil, err
	}
	if err := runs[0].Err; err != nil {
		return nil, err
	}
	return &tinybrokerv1.PublishResponse{Receivers: uint32(runs[0].Receivers)}, nil
}

// PublishStream implements BrokerServiceServer. The frames are read by a goroutine of their own: only by returning can
// the handler end a stream whose publisher is silent while the broker drains.
func (s *brokerService) PublishStream(stream grpc.BidiStreamingServer[tinybrokerv1.PublishStreamRequest, tinybrokerv1.PublishStreamResponse]) error {
	p := &publishStream{broker: s.server.broker, stream: stream}
	ended := make(chan error, 1)
	s.server.loops.Go(func() { ended <- s.guarded(p.run) })
	select {
	case err := <-ended:
		return err
	case <-s.server.broker.Draining():
		p.stop()
		return core.ErrDraining
	}
}

// guarded calls f and turns a panic into an error, for goroutines that the interceptors do not see.
func (s *brokerService) guarded(f func() error) (err error) {
	defer s.server.recover("goroutine of a call", &err)
	return f()
}

// publishStream is one PublishStream call.
type publishStream struct {
	broker *core.Broker
	stream grpc.ServerStream

	mu      sync.Mutex // held from a frame's publication until its receipt is sent
	stopped bool

	scan     frameScan
	runs     []core.Run
	position uint64 // messages dealt with so far
}

// stop waits for the receipt of the frame being published; from then on, no frame is.
func (p *publishStream) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
}

// run publishes one frame after the other. A frame's receipt is sent before the next frame is read, so that a publisher who does not read its
// receipts is not read either.
func (p *publishStream) run() error {
	for {
		var frame rawFrame
		err := p.stream.RecvMsg(&frame)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return tooLarge(err)
		}
		if err := p.publish(frame.data); err != nil {
			return err
		}
	}
}

func (p *publishStream) publish(frame []byte) error {
	if err := p.scan.scan(frame, p.broker.Options().MaxMessageSize); err != nil {
		return err
	}
	p.runs = p.runs[:0]
	for _, r := range p.scan.runs {
		p.runs = append(p.runs, core.Run{Topic: r.topic, Start: r.start, End: r.end, Count: r.count, Err: r.err})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return core.ErrDraining
	}
	before := p.position
	err := p.broker.Publish(p.stream.Context(), &core.Batch{Data: frame, Runs: p.runs, MaxWait: p.scan.maxWait})
	receipt, whole := p.receipt()
	if whole || p.position > before {
		if sendErr := p.stream.SendMsg(receipt); sendErr != nil {
			return sendErr
		}
	}
	if !whole {
		return err
	}
	return nil
}

// receipt tells what became of the runs. whole is false when the broker stopped in the middle, draining or since the publisher has gone: then only
// the messages before that are dealt with, and the publisher is to send the others again elsewhere.
func (p *publishStream) receipt() (r *tinybrokerv1.PublishStreamResponse, whole bool) {
	r = &tinybrokerv1.PublishStreamResponse{}
	for i := range p.runs {
		run := &p.runs[i]
		r.Unrouted += uint64(run.Unrouted)
		if run.Err == nil {
			p.position += uint64(run.Count)
			continue
		}
		p.position += uint64(run.Accepted)
		code, reason := reasonOf(run.Err)
		if reason == "" || errors.Is(run.Err, core.ErrDraining) {
			r.AcceptedThrough = p.position
			return r, false
		}
		refused := run.Count - run.Accepted
		r.Failures = append(r.Failures, &tinybrokerv1.PublishFailure{
			Position: p.position + 1,
			Count:    uint64(refused),
			Code:     int32(code),
			Reason:   reason,
			Text:     boundText(run.Err.Error()),
		})
		p.position += uint64(refused)
	}
	r.AcceptedThrough = p.position
	return r, true
}

// tooLarge gives a gRPC message that the transport refused for its size the status of a message that is too large:
// sending it again will not help, which the transport's own RESOURCE_EXHAUSTED does not say.
func tooLarge(err error) error {
	if status.Code(err) == codes.ResourceExhausted {
		return fmt.Errorf("%w: %s", core.ErrMessageTooLarge, status.Convert(err).Message())
	}
	return err
}
