package rpc

import (
	"context"
	"strings"
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
		return 0, c.callError(ctx, err)
	}
	return int(response.GetReceivers()), nil
}

// Health asks whether the broker serves; it does not while it drains.
func (c *Client) Health(ctx context.Context) (serving bool, err error) {
	response, err := healthgrpc.NewHealthClient(c.conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
	if err != nil {
		return false, c.callError(ctx, err)
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

// callError makes an error of a call with ctx fit for callers: what the broker said, that it cannot be reached, or that ctx has ended. Only ctx
// tells the last: the other end may answer CANCELLED, too.
func (c *Client) callError(ctx context.Context, err error) error {
	if st, ok := status.FromError(err); ok && ctx.Err() != nil && (st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded) {
		return &Error{st: st, cause: ctx.Err()}
	}
	return c.streamError(err)
}

// streamError is callError for a stream whose context has not ended.
func (c *Client) streamError(err error) error {
	if connectionLost(err) {
		return &UnreachableError{Target: c.options.Target, Err: &lostError{cause: connectionCause(err), err: err}}
	}
	return fromStatus(err)
}

// connectionLost reports whether err comes from the transport, or from a proxy, and not from the broker. It must not be asked about the end of
// a context of one's own: the broker cancels nothing and knows no deadline, so that such a status is taken for one from in between.
func connectionLost(err error) bool {
	st, ok := status.FromError(err)
	if !ok || causeOf(st) != nil {
		return false
	}
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	}
	if answer, ok := strings.CutPrefix(st.Message(), httpAnswer); ok {
		return strings.HasPrefix(answer, "5") || strings.HasPrefix(answer, "408") // a proxy with troubles of its own
	}
	return strings.HasPrefix(st.Message(), streamReset) || st.Message() == streamCut || st.Message() == streamTorn
}

// httpAnswer is what gRPC puts before the status of an answer that is not gRPC's.
const httpAnswer = "unexpected HTTP status code received from server: "

// What gRPC says of a stream that was ended by HTTP/2 alone. What the broker has to say, its own failure too, comes with a status.
const (
	streamReset = "stream terminated by RST_STREAM with error code: "
	streamCut   = "server closed the stream without sending trailers"
	streamTorn  = "unexpected EOF" // the same in the middle of a message
)

// frameOfBytes makes b a frame to send.
func frameOfBytes(b []byte) *rawFrame { return &rawFrame{bufs: mem.BufferSlice{mem.SliceBuffer(b)}} }
