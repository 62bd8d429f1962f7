package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// Sizes and times of the transport, the same at both ends where both have them (design: the fast path, operations).
const (
	bufferSize   = 128 << 10 // read and write buffer of a connection
	windowSize   = 1 << 20   // HTTP/2 flow control, of a stream and of a connection
	pingInterval = 10 * time.Second
	pingTimeout  = 5 * time.Second

	// minPingInterval is how often a client may ping; one that does so more often is cut off.
	minPingInterval = 5 * time.Second
	// handshakeTimeout is how long a connection may take to say something sensible.
	handshakeTimeout = 15 * time.Second
	// maxStreams bounds the calls of one connection.
	maxStreams = 5000
	// maxHeaderBytes bounds a call's metadata.
	maxHeaderBytes = 16 << 10
	// defaultReceiveLimit is the largest gRPC message that stock clients and servers take.
	defaultReceiveLimit = 4 << 20
)

// ServerOptions are what a server needs to know beside the broker.
type ServerOptions struct {
	// Logger gets one line for each thing an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
	// Version is told to clients that ask.
	Version string
	// Reflection tells clients like grpcurl what there is to call.
	Reflection bool
	// MaxConnections bounds the connections of each listener; more wait to be accepted.
	MaxConnections int
}

// DefaultServerOptions are the documented defaults.
func DefaultServerOptions() ServerOptions {
	return ServerOptions{Reflection: true, MaxConnections: 10_000}
}

// Server offers a broker over gRPC.
type Server struct {
	broker      *core.Broker
	options     ServerOptions
	log         *slog.Logger
	grpc        *grpc.Server
	health      *health.Server
	connections *connections
	loops       sync.WaitGroup // goroutines started by handlers, which they do not wait for
}

// NewServer returns a server for broker, which the caller keeps owning until Shutdown ends it.
func NewServer(broker *core.Broker, o ServerOptions) *Server {
	s := &Server{
		broker:      broker,
		options:     o,
		log:         o.Logger,
		health:      health.NewServer(),
		connections: newConnections(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.grpc = grpc.NewServer(s.transportOptions()...)
	tinybrokerv1.RegisterAdminServiceServer(s.grpc, &adminService{server: s})
	s.grpc.RegisterService(&brokerServiceDesc, &brokerService{server: s})
	healthgrpc.RegisterHealthServer(s.grpc, s.health)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, healthgrpc.HealthCheckResponse_SERVING)
	}
	if o.Reflection {
		reflection.Register(s.grpc)
	}
	return s
}

func (s *Server) transportOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newRawCodec()),
		grpc.ReadBufferSize(bufferSize),
		grpc.WriteBufferSize(bufferSize),
		grpc.SharedWriteBuffer(true),
		grpc.InitialWindowSize(windowSize),
		grpc.InitialConnWindowSize(windowSize),
		// Twice the message size leaves room for its encoding; what is larger than that is refused before it is buffered.
		grpc.MaxRecvMsgSize(max(defaultReceiveLimit, 2*s.broker.Options().MaxMessageSize)),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingInterval, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(s.guardUnary),
		grpc.StreamInterceptor(s.guardStream),
	}
}

// Serve accepts connections on l until Shutdown; it may be called for several listeners. It closes l.
func (s *Server) Serve(l net.Listener) error {
	if s.options.MaxConnections > 0 {
		l = netutil.LimitListener(l, s.options.MaxConnections)
	}
	err := s.grpc.Serve(s.connections.listener(l))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Shutdown ends the server: it takes nothing new, delivers what is queued to those who read, tells everybody, and
// returns when all are gone. When ctx ends first, whatever is left is cut off, and the context's error returned.
//
// The order: health says no; the broker drains, which ends every subscription once its queue is
// empty, and every publish stream once its last frame is confirmed; connections close as their calls end.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.broker.Drain()
	s.connections.closeSilent()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	var err error
	select {
	case <-stopped:
	case <-ctx.Done():
		err = ctx.Err()
		s.broker.Close()
		s.connections.closeSilent()
		s.grpc.Stop()
		<-stopped
	}
	s.loops.Wait()
	return err
}
