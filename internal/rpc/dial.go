package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const defaultConnectTimeout = 5 * time.Second

// ClientOptions say where the broker is and how hard to try to reach it.
type ClientOptions struct {
	// Target is "host:port", "unix:///path", "unix:path", "/path" or "dns:///host:port"; without a port DefaultPort.
	// Loopback addresses and sockets ignore the proxy variables of the environment.
	Target string
	// TLS returns the client's side of TLS; it is asked for each handshake, so that certificates can be exchanged. The name that the server's
	// must be for stays the same. Nil: plaintext.
	TLS func() *tls.Config
	// Token returns the bearer token to send with a call that is made now; it is asked again for each, so that a token can be
	// exchanged. Nil: none is sent. Without TLS only a broker on this machine gets one.
	Token func() (string, error)
	// ConnectTimeout bounds how long Dial waits for the connection, and every attempt to get it back. 0: 5 s.
	ConnectTimeout time.Duration
	// Wait makes Dial try again until its context ends, instead of giving up at the first failure; and so with Publisher and Subscribe, when
	// the connection is lost before they have opened their first stream.
	Wait bool
	// ReconnectTimeout is how long a Publisher and a subscription try to get a lost connection back. 0: for ever.
	ReconnectTimeout time.Duration
	// NoReconnect makes the loss of the connection an error at once.
	NoReconnect bool
	// OnConnection is told when a Publisher or a subscription loses the connection, when it is back, and why there is none, each cause once:
	// also by Dial, when it is to wait. It is called by their goroutines, not for both at the same time, and must not block. May be nil.
	OnConnection func(ConnectionEvent)
	// DialOptions come last and so override what Dial sets.
	DialOptions []grpc.DialOption
}

// ConnectionEvent says that the connection was lost, why there is still none, or that it is back.
type ConnectionEvent struct {
	Lost    bool          // just lost; it will be tried again
	Waiting bool          // there is still none, and that has a cause which was not told before
	Err     error         // when lost or waiting: why, in short words
	Outage  time.Duration // when back: how long it was away
}

// UnreachableError says that there is no connection to the broker.
type UnreachableError struct {
	Target string // as given
	Lost   bool   // there was one, and it could not or was not to be made again
	Err    error  // why, in short words
}

// Error names the target and the cause.
func (e *UnreachableError) Error() string {
	if e.Lost {
		return fmt.Sprintf("connection to broker at %s lost: %v", e.Target, e.Err)
	}
	return fmt.Sprintf("cannot reach broker at %s: %v", e.Target, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// ErrTokenInClear is that a token would go over a network without TLS, where anybody on the way could read it.
var ErrTokenInClear = errors.New("a token is sent over TLS, to a unix socket or to a loopback address, and nowhere else")

// Dial connects to a broker and returns once the connection stands. A failure is an *UnreachableError, except that the end
// of ctx is returned as it is, ErrTokenInClear too, and a target that cannot be parsed is an error of its own kind.
func Dial(ctx context.Context, o ClientOptions) (*Client, error) {
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = defaultConnectTimeout
	}
	t, err := parseTarget(o.Target)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	if o.Token != nil && o.TLS == nil && !t.local {
		return nil, ErrTokenInClear
	}
	conn, err := grpc.NewClient(t.uri, append(dialOptions(t, &o), o.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	c := newClient(conn, t, o)
	if err := c.awaitFirst(ctx); err != nil {
		_ = c.Close() // it never stood
		return nil, err
	}
	return c, nil
}

func dialOptions(t target, o *ClientOptions) []grpc.DialOption {
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = newExplainedTLS(o.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(quietCredentials{transport}),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithInitialWindowSize(windowSize),
		grpc.WithInitialConnWindowSize(windowSize),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnectBackoff, MinConnectTimeout: o.ConnectTimeout}),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(clientCodec{newRawCodec()}),
			// What the broker accepted from a publisher, its readers must be able to take.
			grpc.MaxCallRecvMsgSize(math.MaxInt32),
		),
	}
	if o.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer{token: o.Token, secure: o.TLS != nil}))
	}
	switch {
	case t.local && t.host != "":
		options = append(options, grpc.WithContextDialer(dialLoopback))
	case t.local:
		options = append(options, grpc.WithNoProxy())
	}
	return options
}

// reconnectBackoff paces the attempts of one connection after the first. gRPC waits exactly the base delay before the
// second: it has to be longer than what pauses.afterLoss spreads the first ones over, or the two meet. From then on the jitter
// is wide, from a fifth of the delay to nearly twice as much, so that many clients that lost one broker do not come back
// together. None waits longer than 5 s.
var reconnectBackoff = backoff.Config{
	BaseDelay:  time.Second,
	Multiplier: 1.6,
	Jitter:     0.8,
	MaxDelay:   2750 * time.Millisecond,
}

// firstWord is how long a client that waits for its broker says nothing.
const firstWord = time.Second

// awaitFirst waits until the connection stands or, unless told to wait, has failed.
func (c *Client) awaitFirst(ctx context.Context) error {
	attempt := ctx
	if c.options.Wait {
		defer c.watchOutage(firstWord)()
	} else {
		var cancel context.CancelFunc
		attempt, cancel = context.WithTimeout(ctx, c.options.ConnectTimeout)
		defer cancel()
	}
	c.conn.Connect()
	for state := c.conn.GetState(); state != connectivity.Ready; state = c.conn.GetState() {
		switch {
		case state == connectivity.TransientFailure && !c.options.Wait:
			return c.unreachable(attempt)
		case state == connectivity.Idle:
			c.conn.Connect()
		}
		if !c.conn.WaitForStateChange(attempt, state) {
			if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return context.Cause(ctx)
			}
			return c.unreachable(attempt)
		}
	}
	return nil
}

// unreachable is the error when there is no connection in time.
func (c *Client) unreachable(ctx context.Context) *UnreachableError {
	cause := c.cause(context.WithoutCancel(ctx))
	if cause == "" {
		cause = "timed out"
	}
	return c.unreachableFor(cause)
}

func (c *Client) unreachableFor(cause string) *UnreachableError {
	if proxy := c.target.proxy(); proxy != "" {
		cause = "by proxy " + proxy + ": " + cause
	}
	return &UnreachableError{Target: c.options.Target, Err: errors.New(cause)}
}
