package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
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

	// streamWorkers is how many goroutines wait for calls. One that is made for a call begins with a small stack, which grows, and is copied,
	// several times on the way to the handler. Calls that last take workers away; when all are taken, each call has a goroutine of its own.
	streamWorkers = 32

	// maxStreams bounds the calls of one connection.
	maxStreams = 5000
	// maxHeaderBytes bounds a call's metadata.
	maxHeaderBytes = 16 << 10
	// minFrameLimit is the least that every server takes as one gRPC message; it is what stock ones take by default.
	minFrameLimit = 4 << 20
)

// serverTimes are how long a server waits for its clients.
type serverTimes struct {
	// handshake is how long a connection may take to say something sensible.
	handshake time.Duration
	// silence and idle are how long a connection may say nothing, or have no call, while others wait since max_connections is
	// reached: then it is closed.
	silence, idle time.Duration
	// open is how long a subscriber may take to say what it wants, and strange how long whoever has shown no credential, where others have to.
	open, strange time.Duration
	// ping and pongTimeout: how often a silent client is asked whether it is there, and how long it may take to answer.
	ping, pongTimeout time.Duration
	// minPing is minPingInterval.
	minPing time.Duration
	// linger is how long a stream that has ended may stay unread before its connection is closed.
	linger time.Duration
	// farewell is how long those who are cut off at the end of a shutdown have to be told.
	farewell time.Duration
}

var defaultServerTimes = serverTimes{
	handshake:   15 * time.Second,
	silence:     time.Second,
	idle:        10 * time.Second,
	open:        15 * time.Second,
	strange:     3 * time.Second,
	ping:        pingInterval,
	pongTimeout: pingTimeout,
	minPing:     minPingInterval,
	linger:      30 * time.Second,
	farewell:    300 * time.Millisecond,
}

// ServerOptions are what a server needs to know beside the broker.
type ServerOptions struct {
	// Logger gets one line for each thing an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
	// Version is told to clients that ask.
	Version string
	// Reflection tells clients like grpcurl what there is to call.
	Reflection bool
	// MaxConnections bounds the connections of each listener; more wait to be accepted, and those that do nothing make room for them.
	MaxConnections int

	// TLS is the server's side of TLS. Nil: plaintext.
	TLS *tls.Config
	// Identities are those who may call, and what they may do. Nil: everybody may do everything.
	Identities *auth.Identities

	times serverTimes // zero: the defaults
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
	connections *connections
	inbound     *inbound
	access      *access
	loops       sync.WaitGroup // goroutines started by handlers, which they do not wait for
	sampling    sync.Once

	calls calls
	lines *lineLimits
}

// NewServer returns a server for broker, which the caller keeps owning until Shutdown ends it.
func NewServer(broker *core.Broker, o ServerOptions) *Server {
	s := &Server{
		broker:      broker,
		options:     o,
		log:         o.Logger,
		connections: newConnections(),
		inbound:     newInbound(broker.Options(), o.MaxConnections),
		lines:       newLineLimits(),
		access:      newAccess(o.Identities),
	}
	s.connections.onClose = s.logConnection
	if s.options.times == (serverTimes{}) {
		s.options.times = defaultServerTimes
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	broker.OnExpired(s.logExpired)
	s.grpc = grpc.NewServer(s.transportOptions()...)
	health := &healthService{broker: broker, services: map[string]bool{"": true}}
	unary := map[string]bool{} // by full name
	for d, implementation := range map[*grpc.ServiceDesc]any{
		&tinybrokerv1.AdminService_ServiceDesc: &adminService{server: s},
		&brokerServiceDesc:                     &brokerService{server: s},
		&healthgrpc.Health_ServiceDesc:         health,
	} {
		s.grpc.RegisterService(requestsLate(d, unary), implementation)
	}
	for name := range s.grpc.GetServiceInfo() {
		health.services[name] = true
	}
	if o.Reflection {
		reflection.Register(s.grpc)
	}
	s.calls = newCalls(s.grpc.GetServiceInfo(), unary)
	return s
}

// Connections returns how many clients are connected: those that have completed the handshake.
func (s *Server) Connections() int { return s.connections.count() }

// ConnectionLimit returns how many connections there may be: MaxConnections for each listener.
func (s *Server) ConnectionLimit() int { return int(s.connections.limit.Load()) }

// ConnectionsWaiting returns for how many listeners there are connections that wait for others to go, since MaxConnections is reached.
func (s *Server) ConnectionsWaiting() int { return int(s.connections.waiting.Load()) }

// UseIdentities exchanges those who may call. It must not be called when there were none at the start. Open streams that would not be
// let in any more end, and so do those that receive what their identity may no longer receive, or may now receive more than.
// The others are not disturbed.
func (s *Server) UseIdentities(ids *auth.Identities) { s.access.use(ids) }

// UseClientCAs tells that the TLS configuration has others who may have issued a client's certificate; nil: nobody may. Calls that
// count on a certificate of somebody else are refused from now on, also on connections that stand, and open streams end.
func (s *Server) UseClientCAs(pool *x509.CertPool) { s.access.useClientCAs(pool) }

// frameLimit is how large a gRPC message may be, decompressed: twice the message size leaves room for its encoding.
func (s *Server) frameLimit() int {
	return max(minFrameLimit, 2*s.broker.Options().MaxMessageSize+recordAllowance)
}

// receiveLimit is from which size on the transport refuses a gRPC message by itself, before it is buffered. gRPC's own
// RESOURCE_EXHAUSTED invites to try again, so it is kept for what is out of all proportion.
func (s *Server) receiveLimit() int { return min(4*s.frameLimit(), math.MaxInt32) }

func (s *Server) transportOptions() []grpc.ServerOption {
	t := s.options.times
	transport := insecure.NewCredentials()
	if s.options.TLS != nil {
		transport = credentials.NewTLS(s.options.TLS)
	}
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newServerCodec()),
		grpc.Creds(s.inbound.credentials(transport, s.logHandshake)),
		grpc.InTapHandle(s.tap),
		grpc.ReadBufferSize(bufferSize),
		grpc.WriteBufferSize(bufferSize),
		grpc.InitialWindowSize(windowSize),
		grpc.InitialConnWindowSize(windowSize),
		grpc.MaxRecvMsgSize(s.receiveLimit()),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(t.handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: t.ping, Timeout: t.pongTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: t.minPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.StreamInterceptor(s.guardStream),
		grpc.UnaryInterceptor(refuseUnary),
		grpc.UnknownServiceHandler(unknownMethod),
	}
}

// Probe returns once the server and its broker have answered a few questions about themselves. As long as it returns, no lock in
// them is held for good.
func (s *Server) Probe() {
	s.broker.Probe()
	_ = s.connections.count()
}

// Serve accepts connections on l until Shutdown; it may be called for several listeners. It closes l.
func (s *Server) Serve(l net.Listener) error {
	s.sampling.Do(func() { s.loops.Go(s.sample) })
	err := s.grpc.Serve(newTrackingListener(l, s))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Shutdown ends the server: it takes nothing new, delivers what is queued to those who read, tells everybody, and
// returns when all are gone. When ctx ends first, whatever is left is cut off, those who read being told; the error is then a *CutOffError.
//
// The order: the broker drains, which makes health say no and ends every subscription once its queue is
// empty, and every publish stream once its last frame is confirmed; connections close as their calls end.
func (s *Server) Shutdown(ctx context.Context) error {
	until, _ := ctx.Deadline()
	s.broker.Drain(until)
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
		err = s.leftBehind(ctx.Err())
		s.broker.Close()
		defer inflating.abandon()()
		select {
		case <-stopped:
		case <-time.After(s.options.times.farewell):
		}
		s.grpc.Stop()
		<-stopped
	}
	s.sampling.Do(func() {}) // a Serve that comes this late starts nothing any more
	s.loops.Wait()
	return err
}

// CutOffError says what a Shutdown has cut off: subscriptions that had not taken all they were to get, and messages.
type CutOffError struct {
	Subscriptions int
	Queued        int64 // messages that waited in queues, those of groups included
	InFlight      int   // messages that members of groups had not acknowledged
	Err           error // the end of the context
}

// Error counts them.
func (e *CutOffError) Error() string {
	return fmt.Sprintf("cut off %d subscriptions, %d messages in queues and %d in flight: %v", e.Subscriptions, e.Queued, e.InFlight, e.Err)
}

// Unwrap returns the error of the context.
func (e *CutOffError) Unwrap() error { return e.Err }

func (s *Server) leftBehind(err error) error {
	st := s.broker.Stats()
	e := &CutOffError{Subscriptions: st.Subscriptions, Queued: st.QueuedMessages, Err: err}
	for _, g := range s.broker.Groups() {
		e.InFlight += g.InFlight
	}
	return e
}
