package rpc

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// calls counts the calls of every method the server has. What clients call besides does not exist, and gets no counter: nobody shall
// fill the broker's memory, or a page of metrics, with names he has made up.
type calls map[string]*methodCalls // by full name

type methodCalls struct {
	service, method, kind string
	started               atomic.Uint64
	handled               [codes.Unauthenticated + 1]atomic.Uint64
}

func newCalls(services map[string]grpc.ServiceInfo, unary map[string]bool) calls {
	c := make(calls)
	for service, info := range services {
		for _, m := range info.Methods {
			name := "/" + service + "/" + m.Name
			c[name] = &methodCalls{service: service, method: m.Name, kind: callKind(m)}
			if unary[name] {
				c[name].kind = "unary"
			}
		}
	}
	return c
}

func callKind(m grpc.MethodInfo) string {
	switch {
	case m.IsClientStream && m.IsServerStream:
		return "bidi_stream"
	case m.IsClientStream:
		return "client_stream"
	case m.IsServerStream:
		return "server_stream"
	}
	return "unary"
}

// start counts a call, and the status of *err once the returned function is called.
func (c calls) start(method string) func(err *error) {
	m := c[method]
	if m == nil {
		return func(*error) {}
	}
	m.started.Add(1)
	return func(err *error) {
		// A handler may return any number as a code.
		if code := status.Code(*err); int(code) < len(m.handled) {
			m.handled[code].Add(1)
		} else {
			m.handled[codes.Unknown].Add(1)
		}
	}
}

// VisitCalls tells how many calls of each method were begun and how many have ended with each status, zeroes included. Kind is
// unary, client_stream, server_stream or bidi_stream; code is spelt as in package codes.
func (s *Server) VisitCalls(started func(kind, service, method string, n uint64), handled func(kind, service, method, code string, n uint64)) {
	for _, m := range s.calls {
		// Ended calls are read first, so that there are never more of them than were begun.
		for code := range m.handled {
			handled(m.kind, m.service, m.method, codes.Code(code).String(), m.handled[code].Load())
		}
		started(m.kind, m.service, m.method, m.started.Load())
	}
}
