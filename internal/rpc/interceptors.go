package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

const reflectionPrefix = "/grpc.reflection."

// tap is where a call comes by before it takes anything: whether there is such a method, which gRPC would deny with all of the name that was
// asked for, and whether there is room for the call.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if s.calls[info.FullMethodName] == nil {
		return turnAway(ctx, status.Error(codes.Unimplemented, boundText("unknown method "+info.FullMethodName)))
	}
	known, err := s.inbound.tap(ctx, info, s.access.strange(ctx))
	if err != nil {
		s.logRefusal(ctx, info.FullMethodName, err)
		return turnAway(ctx, toStatus(err))
	}
	return known, nil
}

// turnAway refuses a call in the tap. One with a deadline goes on to guardStream, which refuses it: gRPC does not cancel the context of a call that
// the tap refuses, and would keep its timer until the deadline, which may be centuries away.
func turnAway(ctx context.Context, err error) (context.Context, error) {
	if _, timed := ctx.Deadline(); timed {
		return context.WithValue(ctx, turnedAwayKey{}, err), nil
	}
	return nil, err
}

// turnedAwayKey is the key of why a call is refused in its context.
type turnedAwayKey struct{}

// unknownMethod is the handler of all methods that there are not, which turnAway has seen before.
func unknownMethod(any, grpc.ServerStream) error {
	return status.Error(codes.Unimplemented, "unknown method")
}

// guardStream is where every call comes by, see requestsLate for those that are no streams. It asks who may call, and recovers the
// panics of handlers, which gRPC does not: one odd request would end the broker. They become a status and a log line with the stack.
//
// It keeps little on its stack, as the handler of a subscription does: both stay there for as long as the subscription lives.
func (s *Server) guardStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if why, turnedAway := stream.Context().Value(turnedAwayKey{}).(error); turnedAway {
		return why
	}
	c := s.newCall(stream, info.FullMethod)
	defer c.end(&err)
	if err := c.admit(); err != nil {
		return err
	}
	return c.handle(srv, handler)
}

// guardedCall is one call. It is the stream that its handler sees: its context leads to the session.
type guardedCall struct {
	grpc.ServerStream
	ctx     context.Context
	in      *inCall
	server  *Server
	method  string
	session *session
	counted func(err *error)
}

func (s *Server) newCall(stream grpc.ServerStream, method string) *guardedCall {
	ctx := stream.Context()
	return &guardedCall{
		ServerStream: stream,
		ctx:          ctx,
		in:           inCallOf(ctx),
		server:       s,
		method:       method,
		counted:      s.calls.start(method),
	}
}

// admit asks who may call.
func (c *guardedCall) admit() (err error) {
	c.session, err = c.server.access.admit(c.ctx, c.method)
	if err != nil {
		c.server.logRefusal(c.ctx, c.method, err)
		return err
	}
	if c.session != nil {
		c.ctx = context.WithValue(c.ctx, sessionKey{}, c.session)
	}
	return nil
}

// handle calls the handler.
func (c *guardedCall) handle(srv any, handler grpc.StreamHandler) error {
	switch {
	case strings.HasPrefix(c.method, reflectionPrefix), c.method == tinybrokerv1.AdminService_Watch_FullMethodName:
		return c.server.untilEnded(c.session, func() error { return handler(srv, c) })
	case rules[c.method] == anyone:
		patience := c.server.options.times.open
		if c.in != nil && c.in.strange {
			patience = c.server.options.times.strange
		}
		return c.server.atOnce(patience, func() error { return handler(srv, c) })
	}
	return handler(srv, c)
}

// end turns *err, or the panic of the handler, into the status of the call, and forgets the call. It is to be deferred.
func (c *guardedCall) end(err *error) {
	if p := recover(); p != nil {
		c.server.panicked(c.method, p, err)
	} else {
		if canceled := errors.Is(*err, context.Canceled) || status.Code(*err) == codes.Canceled; canceled && c.in.wasRefused() {
			*err = errInbound // a handler that was not told knows only that its context has ended
		}
		if errors.Is(*err, core.ErrQuota) || errors.Is(*err, errInbound) {
			c.server.logRefusal(c.ctx, c.method, *err)
		}
		*err = c.server.toStatus(c.method, *err)
	}
	c.server.access.dismiss(c.session)
	c.in.end()
	c.counted(err)
}

// Context implements grpc.ServerStream.
func (c *guardedCall) Context() context.Context { return c.ctx }

// RecvMsg implements grpc.ServerStream. gRPC writes a status itself when the context ends meanwhile: that the client had canceled the call. So a call
// that is given up while its request comes in does not wait for gRPC.
func (c *guardedCall) RecvMsg(m any) error {
	if !c.in.receives() {
		return c.nextRequest(m)
	}
	select {
	case err := <-c.server.start(func() error { return c.nextRequest(m) }):
		if c.in.received() {
			return errInbound
		}
		return err
	case <-c.in.refusal():
		return errInbound
	}
}

// nextRequest reads a request. That it is asked for tells that the one before it has been dealt with, at the latest.
func (c *guardedCall) nextRequest(m any) error {
	c.in.settle()
	var err error
	if decoded, ok := m.(proto.Message); ok {
		err = receive(c.ServerStream, decoded)
	} else {
		err = c.ServerStream.RecvMsg(m)
	}
	if err == nil {
		c.in.given(sizeOfRequest(m))
	}
	return err
}

// sizeOfRequest returns how many bytes a request has that was received as such; 0 for others, which are short.
func sizeOfRequest(m any) int {
	switch m := m.(type) {
	case *rawFrame:
		return len(m.data)
	case *requestFrame:
		return len(m.data)
	}
	return 0
}

// logRefusal tells the operator who knocks at the door.
func (s *Server) logRefusal(ctx context.Context, method string, err error) {
	if s.lines.refusals.allow(s.log) {
		s.log.Warn("call refused", "method", boundText(method), "peer", peerOf(ctx), "why", err.Error())
	}
}

// untilEnded runs a handler that would keep its stream open for as long as the client does: one that is not ours, or that sends to who may not
// read. The return of the call ends the stream, and with it the handler.
func (s *Server) untilEnded(session *session, call func() error) error {
	ended := s.start(call)
	select {
	case err := <-ended:
		return err
	case <-s.broker.Draining():
		return core.ErrDraining
	case <-session.ended():
		return session.why()
	}
}

// atOnce runs the handler of a method that anyone may call: who says nothing is not waited for, whoever it is.
func (s *Server) atOnce(patience time.Duration, call func() error) error {
	ended := s.start(call)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case err := <-ended:
		return err
	case <-timeout.C:
		return fmt.Errorf("%w: no request within %s", core.ErrProtocol, patience)
	}
}

// start calls f in a goroutine of its own, which the handler that starts it need not wait for, and returns where its error will be.
func (s *Server) start(f func() error) <-chan error {
	ended := make(chan error, 1)
	s.loops.Go(func() { ended <- s.guarded(f) })
	return ended
}

// guarded calls f and turns a panic into an error, for goroutines that the interceptors do not see.
func (s *Server) guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked("goroutine of a call", p, &err)
		}
	}()
	return f()
}

func (s *Server) panicked(method string, p any, err *error) {
	s.log.Error("panic in a call", "method", method, "panic", p, "stack", string(debug.Stack()))
	*err = status.Error(codes.Internal, "internal error")
}

// toStatus makes a handler's error fit for the wire. What is neither the broker's, nor a status, nor the end of the call's
// context is a defect: the client learns only that there is one, the log tells which.
func (s *Server) toStatus(method string, err error) error {
	_, reason := reasonOf(err)
	_, isStatus := status.FromError(err)
	if err != nil && reason == "" && !isStatus && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		s.log.Error("call failed", "method", method, "error", err)
	}
	return toStatus(err)
}
