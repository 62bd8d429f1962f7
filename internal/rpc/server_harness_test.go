package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// station is a server on a TCP port for stock clients: generated stubs with nothing set.
type station struct {
	broker *core.Broker
	server *Server
	addr   string
	log    *logLines
	served chan error
}

// newStation returns a running server. It is stopped at the test's end.
func newStation(t testing.TB, change func(*core.Options, *ServerOptions)) *station {
	t.Helper()
	options, serverOptions := core.DefaultOptions(), DefaultServerOptions()
	options.Encoding = Encoding{}
	serverOptions.times = defaultServerTimes
	s := &station{log: &logLines{}, served: make(chan error, 1)}
	serverOptions.Logger = slog.New(slog.NewJSONHandler(s.log, nil))
	if change != nil {
		change(&options, &serverOptions)
	}
	broker, err := core.New(options)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.broker, s.server, s.addr = broker, NewServer(broker, serverOptions), l.Addr().String()
	go func() { s.served <- s.server.Serve(l) }()
	eventually(t, "it serves", func() bool { return s.server.ConnectionLimit() > 0 })
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.server.Shutdown(ctx)
		if err := <-s.served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

// dial returns a connection that is closed at the test's end.
func (s *station) dial(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.addr, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stub returns a stock client with a connection of its own.
func (s *station) stub(t testing.TB, options ...grpc.DialOption) tinybrokerv1.BrokerServiceClient {
	t.Helper()
	return tinybrokerv1.NewBrokerServiceClient(s.dial(t, options...))
}

// frozenOptions make a client whose transport takes 64 KiB a stream, and more only as it is read.
func frozenOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithInitialWindowSize(64 << 10), grpc.WithInitialConnWindowSize(64 << 10)}
}

// logLines collects what a server logs.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with returns the lines with this message.
func (l *logLines) with(t testing.TB, msg string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range strings.Lines(l.buf.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if fields["msg"] == msg {
			found = append(found, fields)
		}
	}
	return found
}

// stockStream is an open subscription of a stock client.
type stockStream struct {
	tinybrokerv1.BrokerService_SubscribeClient
	opened *tinybrokerv1.Opened
	cancel context.CancelFunc
	next   uint64 // the delivery number expected next
}

// open opens a subscription and reads `opened`.
func open(t testing.TB, stub tinybrokerv1.BrokerServiceClient, o *tinybrokerv1.OpenSubscription) *stockStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s, err := tryOpen(ctx, stub, o)
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	return s
}

// openPatterns opens a subscription with nothing but patterns.
func openPatterns(t testing.TB, stub tinybrokerv1.BrokerServiceClient, patterns ...string) *stockStream {
	t.Helper()
	return open(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: patterns})
}

func tryOpen(ctx context.Context, stub tinybrokerv1.BrokerServiceClient, o *tinybrokerv1.OpenSubscription) (*stockStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	first, stream, err := firstResponse(ctx, stub, &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: o}})
	if err != nil {
		cancel()
		return nil, err
	}
	return &stockStream{BrokerService_SubscribeClient: stream, opened: first.GetOpened(), cancel: cancel, next: 1}, nil
}

// firstResponse opens a stream with any request and returns what comes back first.
func firstResponse(ctx context.Context, stub tinybrokerv1.BrokerServiceClient, r *tinybrokerv1.SubscribeRequest) (*tinybrokerv1.SubscribeResponse, tinybrokerv1.BrokerService_SubscribeClient, error) {
	stream, err := stub.Subscribe(ctx)
	if err != nil {
		return nil, nil, err
	}
	_ = stream.Send(r) // why it failed comes from receiving
	first, err := stream.Recv()
	return first, stream, err
}

// frame returns the next frame with messages, checking that the delivery numbers go on; nil at a `closed` frame.
func (s *stockStream) frame(t testing.TB) *tinybrokerv1.SubscribeResponse {
	t.Helper()
	for {
		r, err := s.Recv()
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		if n := len(r.GetMessages()); n > 0 {
			if r.GetFirstSequence() != s.next || r.GetAttempt() != 1 {
				t.Fatalf("frame begins with delivery %d, attempt %d; want delivery %d", r.GetFirstSequence(), r.GetAttempt(), s.next)
			}
			s.next += uint64(n)
			return r
		}
		if r.GetClosed() != nil {
			return nil
		}
	}
}

// take returns the next n messages, and with them whatever came in the same frame.
func (s *stockStream) take(t testing.TB, n int) []*tinybrokerv1.Message {
	t.Helper()
	var messages []*tinybrokerv1.Message
	for len(messages) < n {
		r := s.frame(t)
		if r == nil {
			t.Fatalf("closed after %d of %d messages", len(messages), n)
		}
		messages = append(messages, r.GetMessages()...)
	}
	return messages
}

// publishOne publishes one message and returns its receivers.
func publishOne(t testing.TB, stub tinybrokerv1.BrokerServiceClient, topic string, payload []byte) uint32 {
	t.Helper()
	r, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: topic, Payload: payload})
	if err != nil {
		t.Fatalf("publish %q: %v", topic, err)
	}
	return r.GetReceivers()
}

// checkStatus reports an error that is not told as the design says.
func checkStatus(t testing.TB, err error, code codes.Code, reason string) {
	t.Helper()
	st, ok := status.FromError(err)
	if !ok || st.Code() != code {
		t.Errorf("got %v, want %s", err, code)
		return
	}
	if n := len(st.Message()); n == 0 || n > maxText {
		t.Errorf("%d bytes of text", n)
	}
	told, retry := "", false
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() != errorDomain {
				t.Errorf("domain %q", d.GetDomain())
			}
			told = d.GetReason()
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration() > 0
		}
	}
	if told != reason {
		t.Errorf("reason %q (%s), want %q", told, st.Message(), reason)
	}
	if want := code == codes.ResourceExhausted || code == codes.Unavailable; retry != want {
		t.Errorf("advises to retry: %v, want %v", retry, want)
	}
}

// eventually waits for something that happens soon.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// numbered returns a payload of size bytes that carries n and its checksum.
func numbered(n uint64, size int) []byte {
	p := make([]byte, max(size, 12))
	binary.BigEndian.PutUint64(p, n)
	binary.BigEndian.PutUint32(p[8:], crc32.ChecksumIEEE(p[:8]))
	return p
}

// numberOf returns the number in a payload. It may be called by any goroutine.
func numberOf(t testing.TB, p []byte) uint64 {
	t.Helper()
	if len(p) < 12 || crc32.ChecksumIEEE(p[:8]) != binary.BigEndian.Uint32(p[8:]) {
		t.Errorf("damaged payload % x", p[:min(len(p), 16)])
		return 1 << 63
	}
	return binary.BigEndian.Uint64(p)
}
