package rpc

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// Client is a connection to a broker. It is safe for concurrent use. Its errors satisfy errors.Is with core's; those the
// broker answered with are *Error.
type Client struct {
	conn    *grpc.ClientConn
	target  target
	options ClientOptions
	broker  tinybrokerv1.BrokerServiceClient

	ctx        context.Context // of the publishers; ends with Close
	stop       context.CancelFunc
	publishers sync.WaitGroup

	outage outage
}

func newClient(conn *grpc.ClientConn, t target, o ClientOptions) *Client {
	ctx, stop := context.WithCancel(context.Background())
	return &Client{
		conn:    conn,
		target:  t,
		options: o,
		broker:  tinybrokerv1.NewBrokerServiceClient(conn),
		ctx:     ctx,
		stop:    stop,
		outage:  outage{tell: o.OnConnection},
	}
}

// Close ends everything that uses the connection, without waiting for confirmations, and returns when it has ended. Close
// publishers first.
func (c *Client) Close() error {
	c.stop()
	err := c.conn.Close()
	c.publishers.Wait()
	return err
}

// Publish hands over one message and returns how many subscriptions took it; maxWait is how long it may be held back for
// receivers that are nearly full. A lost connection is an error here: whether the message went out is then not known.
func (c *Client) Publish(ctx context.Context, m *core.Message, maxWait time.Duration) (receivers int, err error) {
	request := appendMessage(nil, m)
	if maxWait > 0 {
		request = appendPatience(request, fieldRequestMaxWait, maxWait)
	}
	var response tinybrokerv1.PublishResponse
	err = c.conn.Invoke(ctx, tinybrokerv1.BrokerService_Publish_FullMethodName, frameOfBytes(request), &response)
	if err != nil {
		return 0, c.callError(err)
	}
	return int(response.GetReceivers()), nil
}

// Health asks whether the broker serves; it does not while it drains.
func (c *Client) Health(ctx context.Context) (serving bool, err error) {
	response, err := healthgrpc.NewHealthClient(c.conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
	if err != nil {
		return false, c.callError(err)
	}
	return response.GetStatus() == healthgrpc.HealthCheckResponse_SERVING, nil
}

// Stats returns a snapshot of the broker's totals.
func (c *Client) Stats(ctx context.Context) (core.Stats, error) {
	snapshot, err := c.Observe(ctx, core.Query{})
	if err != nil {
		return core.Stats{}, err
	}
	return snapshot.Broker, nil
}

// callError makes an error of a call fit for callers: what the broker said, or that it cannot be reached.
func (c *Client) callError(err error) error {
	if connectionLost(err) {
		return &UnreachableError{Target: c.options.Target, Err: &lostError{cause: connectionCause(err), err: err}}
	}
	return fromStatus(err)
}

// connectionLost reports whether err comes from the transport and not from the broker.
func connectionLost(err error) bool {
	st, ok := status.FromError(err)
	return ok && st.Code() == codes.Unavailable && causeOf(st) == nil
}

// frameOfBytes makes b a frame to send.
func frameOfBytes(b []byte) *rawFrame { return &rawFrame{bufs: mem.BufferSlice{mem.SliceBuffer(b)}} }
