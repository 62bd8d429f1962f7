package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func TestParseTarget(t *testing.T) {
	for _, test := range []struct {
		in, uri string
		local   bool
	}{
		{"127.0.0.1:7710", "dns:///127.0.0.1:7710", true},
		{"127.8.9.1", "dns:///127.8.9.1:7710", true},
		{"localhost:1", "dns:///localhost:1", true},
		{"LOCALHOST", "dns:///LOCALHOST:7710", true},
		{"a.localhost", "dns:///a.localhost:7710", true},
		{":99", "dns:///localhost:99", true},
		{"[::1]:99", "dns:///[::1]:99", true},
		{"::1", "dns:///[::1]:7710", true},
		{"[::1]", "dns:///[::1]:7710", true},
		{"::ffff:127.0.0.1", "dns:///[::ffff:127.0.0.1]:7710", true},
		{"broker.example:99", "dns:///broker.example:99", false},
		{"broker", "dns:///broker:7710", false},
		{"10.0.0.1", "dns:///10.0.0.1:7710", false},
		{"localhost.example", "dns:///localhost.example:7710", false},
		{"dns:///broker:99", "dns:///broker:99", false},
		{"dns:///localhost", "dns:///localhost:7710", true},
		{"dns:broker:99", "dns:broker:99", false},
		{"dns://10.0.0.1/broker", "dns://10.0.0.1/broker:7710", false},
		{"/run/tb.sock", "unix:///run/tb.sock", true},
		{"unix:///run/tb.sock", "unix:///run/tb.sock", true},
		{"unix:tb.sock", "unix:tb.sock", true},
		{"unix-abstract:tb", "unix-abstract:tb", true},
		{"passthrough:///x", "passthrough:///x", false},
	} {
		got, err := parseTarget(test.in)
		if err != nil || got.uri != test.uri || got.local != test.local {
			t.Errorf("%q: %+v, %v, want %q, local %v", test.in, got, err, test.uri, test.local)
		}
		if IsLocal(test.in) != test.local {
			t.Errorf("IsLocal(%q) is %v", test.in, !test.local)
		}
	}
	for _, in := range []string{"", "7710", "a:b:c", "http://broker:99", "nats://broker", "unix:", "unix://", "unix://tb.sock", "unix://run/tb.sock", "dns:///", "dns:", "dns://x", "broker:", "a b:1", "a/b", "127.0.0.1:99999", ":abc", "127.0.0.1:17820/", "broker:0", "broker:-1", "broker:http", "dns:///broker:65536"} {
		if got, err := parseTarget(in); err == nil {
			t.Errorf("%q is taken for %+v", in, got)
		}
		if _, err := Dial(t.Context(), ClientOptions{Target: in}); err == nil || !strings.HasPrefix(err.Error(), "server address: ") {
			t.Errorf("Dial %q: %v", in, err)
		}
		if IsLocal(in) {
			t.Errorf("%q is local", in)
		}
	}
}

// A broker that is told to listen where ListenAddress says is reached at the target.
func TestListenAddress(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:99": "127.0.0.1:99", "localhost": "localhost:7710", ":99": "localhost:99", "::1": "[::1]:7710", "[::1]:99": "[::1]:99",
		"dns:///localhost:99": "localhost:99", "/run/tb.sock": "/run/tb.sock", "unix:tb.sock": "unix:tb.sock", "unix:///tb.sock": "unix:///tb.sock",
		"unix-abstract:tb": "", "broker:99": "", "10.0.0.1:99": "", "7710": "", "": "",
	} {
		if got := ListenAddress(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestDialCauses: whatever is wrong is said in short words, and at once.
func TestDialCauses(t *testing.T) {
	useTLS := grpc.WithTransportCredentials(credentials.NewTLS(nil))
	certificate := selfSigned(t)
	plain, secure := grpc.NewServer(), grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	for _, test := range []struct {
		name    string
		target  string
		options []grpc.DialOption
		want    string
	}{
		{"nobody listens", closedPort(t), nil, "connection refused"},
		{"no socket", "unix://" + filepath.Join(t.TempDir(), "x.sock"), nil, "no such socket"},
		{"web server", listening(t, func(l net.Listener) { _ = http.Serve(l, http.NotFoundHandler()) }), nil, "not a gRPC server: it answers in HTTP/1"}, //nolint:gosec // a test
		{"plaintext to TLS", listening(t, serving(secure)), nil, "TLS mismatch: the server does not speak plaintext HTTP/2; it may expect TLS"},
		{"TLS to plaintext", listening(t, serving(plain)), []grpc.DialOption{useTLS}, "TLS mismatch: the server does not speak TLS"},
		{"unknown certificate", listening(t, serving(secure)), []grpc.DialOption{useTLS}, "TLS: failed to verify certificate: x509: certificate is not valid for any names, but wanted to match 127.0.0.1"},
		{"silence", listening(t, keepOpen), nil, "timed out"},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			c, err := Dial(t.Context(), ClientOptions{Target: test.target, ConnectTimeout: time.Second, DialOptions: test.options})
			var unreachable *UnreachableError
			if !errors.As(err, &unreachable) {
				t.Fatalf("%v, %v", c, err)
			}
			got := unreachable.Err.Error()
			if test.name == "unknown certificate" {
				got, test.want = strings.SplitAfter(got, "x509:")[0], strings.SplitAfter(test.want, "x509:")[0]
			}
			if got != test.want || unreachable.Target != test.target {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
	plain.Stop()
	secure.Stop()
}

// TestLocalNamesStayLocal: a name for this machine that a resolver thinks is elsewhere is not followed, and nothing is sent there.
func TestLocalNamesStayLocal(t *testing.T) {
	server := serveNames(t, [4]byte{192, 0, 2, 1})
	for _, name := range []string{"a.localhost", "localhost."} {
		start := time.Now()
		_, err := Dial(t.Context(), ClientOptions{Target: "dns://" + server + "/" + name, ConnectTimeout: 20 * time.Second})
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || unreachable.Err.Error() != "a name for this machine was resolved to 192.0.2.1:7710, which is not" {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
	s := grpc.NewServer()
	address := listening(t, serving(s))
	defer s.Stop()
	_, port, _ := net.SplitHostPort(address)
	c, err := Dial(t.Context(), ClientOptions{Target: "dns://" + serveNames(t, [4]byte{127, 0, 0, 1}) + "/a.localhost:" + port})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// serveNames is a name server with one answer to every question.
func serveNames(t *testing.T, answer [4]byte) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}, Questions: m.Questions}
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				reply.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
					Body:   &dnsmessage.AResource{A: answer},
				}}
			}
			packed, err := reply.Pack()
			if err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return conn.LocalAddr().String()
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// listening serves on a port until the test's end and returns its address.
func listening(t *testing.T, serve func(net.Listener)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(l)
	}()
	t.Cleanup(func() {
		_ = l.Close() // a server may have closed it
		<-done
	})
	return l.Addr().String()
}

func serving(s *grpc.Server) func(net.Listener) {
	return func(l net.Listener) { _ = s.Serve(l) }
}

// keepOpen accepts and says nothing.
func keepOpen(l net.Listener) {
	var conns []net.Conn
	for {
		conn, err := l.Accept()
		if err != nil {
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		_ = conn.Close() // whatever the other end did
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"example.org"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestConnectionCause(t *testing.T) {
	for text, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:1: connect: operation not permitted"`: "dial tcp 10.0.0.1:1: connect: operation not permitted",
		`error reading from server: EOF`:                                                            "connection closed",
		`error reading from server: read tcp a->b: read: connection reset by peer`:                  "connection reset",
		`keepalive ping failed to receive ACK within timeout`:                                       "no answer to keepalive",
		`connection error: desc = "transport: authentication handshake failed: tls: something new"`: "TLS: something new",
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connectex: No connection could be made because the target machine actively refused it."`: "connection refused",
		`dns: A record lookup error: lookup broker.example on [::1]:53: read udp [::1]:59749->[::1]:53: read: connection refused`:                                                 "its name cannot be looked up: connection refused",
		`dns: A record lookup error: lookup broker.example on 127.0.0.1:53: no such host`:                                                                                         "no such host",
		"name resolver error: produced zero addresses": "no such host",
		`unexpected HTTP status code received from server: 502 (Bad Gateway); transport: received unexpected content-type "text/html"`:                           "what is in between answers 502 (Bad Gateway)",
		`connection error: desc = "transport: authentication handshake failed: credentials: cannot check peer: missing selected ALPN property. If you upgraded"`: causeNoHTTP2,
		`connection error: desc = "transport: authentication handshake failed: remote error: tls: no application protocol"`:                                      causeNoHTTP2,
		"unexpected EOF":    causeStreamCut,
		"context canceled":  "cancelled by the other end",
		"":                  "Unavailable",
		"never seen before": "never seen before",
	} {
		if got := connectionCause(status.Error(codes.Unavailable, text)); got != want {
			t.Errorf("%q is told as %q, want %q", text, got, want)
		}
	}
}

// TestDialOverSocket: a path alone will do, with whatever the environment says about proxies.
func TestDialOverSocket(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("https_proxy", "http://127.0.0.1:1")
	o := core.DefaultOptions()
	o.Encoding = Encoding{}
	broker, err := core.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(broker, DefaultServerOptions())
	path := filepath.Join(t.TempDir(), "tb.sock")
	unix, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 2)
	for _, l := range []net.Listener{unix, tcp} {
		go func() { served <- server.Serve(l) }()
	}
	_, port, _ := net.SplitHostPort(tcp.Addr().String())
	for _, target := range []string{path, "unix:" + path, "unix://" + path, "127.0.0.1:" + port, "localhost:" + port, "dns:///localhost:" + port} {
		c, err := Dial(within(t, 5*time.Second), ClientOptions{Target: target})
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		if _, err := c.Publish(within(t, 5*time.Second), &core.Message{Topic: "a"}, 0); err != nil {
			t.Errorf("%s: publish: %v", target, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: close: %v", target, err)
		}
	}
	if err := server.Shutdown(within(t, 5*time.Second)); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

func TestDialWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		site.kill(t)
		if _, err := Dial(t.Context(), site.clientOptions()); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("without waiting: %v", err)
		}
		waiting := site.clientOptions()
		waiting.Wait = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := Dial(ctx, waiting); err == nil || time.Since(start) != time.Minute || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("waiting in vain: %v after %v", err, time.Since(start))
		}
		interrupted, interrupt := context.WithCancelCause(t.Context())
		why := errors.New("interrupted")
		time.AfterFunc(time.Second, func() { interrupt(why) })
		if _, err := Dial(interrupted, waiting); !errors.Is(err, why) {
			t.Errorf("interrupted: %v", err)
		}
		time.AfterFunc(time.Hour, func() { site.start(t) })
		start = time.Now()
		c, err := Dial(t.Context(), waiting)
		if err != nil {
			t.Fatal(err)
		}
		if late := time.Since(start) - time.Hour; late > 5*time.Second {
			t.Errorf("noticed the broker %v late", late)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDialNamesProxy: what stands between is named, without its password.
func TestDialNamesProxy(t *testing.T) {
	_, err := Dial(t.Context(), ClientOptions{Target: "broker.example:7710"})
	if want := "cannot reach broker at broker.example:7710: by proxy 127.0.0.1:1: connection refused"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
