//go:build unix

package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/auth/certtest"
	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// tlsStation is a station that speaks TLS with certificates of one issuer.
type tlsStation struct {
	*station
	issuer *certtest.Issuer
	side   *auth.ServerTLS
}

// material reads a pair, and who may have issued the other end's certificate.
func material(t testing.TB, p certtest.Pair, ca string) *auth.Material {
	t.Helper()
	m, err := auth.Load(auth.Files{Certificate: p.Certificate, Key: p.Key, CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newTLSStation(t testing.TB, identities string) *tlsStation {
	t.Helper()
	s := &tlsStation{issuer: certtest.New(t)}
	var err error
	s.side, err = auth.NewServerTLS(material(t, s.issuer.Issue("broker", nil), s.issuer.CA), identities == "")
	if err != nil {
		t.Fatal(err)
	}
	s.station = newStation(t, func(_ *core.Options, o *ServerOptions) {
		o.TLS = s.side.Config()
		if identities != "" {
			o.Identities = identitiesOf(t, identities)
		}
	})
	return s
}

// stub returns a stock client with a certificate; an empty one: without.
func (s *tlsStation) stub(t testing.TB, p certtest.Pair, options ...grpc.DialOption) tinybrokerv1.BrokerServiceClient {
	t.Helper()
	config := auth.ClientTLS(material(t, p, s.issuer.CA), "localhost")
	conn, err := grpc.NewClient("passthrough:///"+s.addr, append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return tinybrokerv1.NewBrokerServiceClient(conn)
}

const certificateIdentities = `identities:
- {name: a, certificate_names: "cn:a", token_hash: HASH:a, subscribe: {allow: "**"}, publish: {allow: "**"}}
- {name: b, certificate_names: "dns:b.example", token_hash: HASH:b, publish: {allow: b}}
`

func publishCode(t *testing.T, stub tinybrokerv1.BrokerServiceClient, topic string) codes.Code {
	t.Helper()
	_, err := stub.Publish(within(t, 5*time.Second), &tinybrokerv1.PublishRequest{Topic: topic})
	return status.Code(err)
}

// TestClientCertificates: who is who by certificate, by token, by both.
func TestClientCertificates(t *testing.T) {
	s := newTLSStation(t, certificateIdentities)
	none := certtest.Pair{}
	a, b := s.issuer.Issue("a", nil), s.issuer.Issue("x", func(c *x509.Certificate) { c.DNSNames = []string{"y", "b.example"} })
	stranger, serverName := s.issuer.Issue("stranger", nil), s.issuer.Issue("b.example", nil)
	for _, test := range []struct {
		name   string
		pair   certtest.Pair
		token  string
		topic  string
		expect codes.Code
	}{
		{"a certificate", a, "", "any", codes.OK},
		{"another", b, "", "b", codes.OK},
		{"another, where it may not", b, "", "any", codes.PermissionDenied},
		{"nothing", none, "", "b", codes.Unauthenticated},
		{"a token alone", none, "b", "b", codes.OK},
		{"a name that nobody has", stranger, "", "b", codes.Unauthenticated},
		{"a name of another kind", serverName, "", "b", codes.Unauthenticated},
		{"a token counts before a certificate", a, "b", "any", codes.PermissionDenied},
		{"a bad token is not made good by a certificate", a, "bad", "any", codes.Unauthenticated},
		{"a good one needs none", stranger, "a", "any", codes.OK},
	} {
		var options []grpc.DialOption
		if test.token != "" {
			options = append(options, as(test.token))
		}
		if got := publishCode(t, s.stub(t, test.pair, options...), test.topic); got != test.expect {
			t.Errorf("%s: %s, want %s", test.name, got, test.expect)
		}
	}
	// One of another issuer is not even let in.
	other := certtest.New(t)
	if got := publishCode(t, s.stub(t, other.Issue("a", nil)), "any"); got != codes.Unavailable {
		t.Errorf("a certificate of somebody else: %s", got)
	}
}

// TestSweepWithTLS: a certificate that nobody knows opens no method.
func TestSweepWithTLS(t *testing.T) {
	s := newTLSStation(t, certificateIdentities)
	for _, p := range []certtest.Pair{{}, s.issuer.Issue("stranger", nil)} {
		config := auth.ClientTLS(material(t, p, s.issuer.CA), "localhost")
		conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range methodsOf(s.server) {
			err := call(within(t, 5*time.Second), conn, method, requestOf(method))
			if rules[method] == anyone {
				if err != nil {
					t.Errorf("%s: %v", method, err)
				}
				continue
			}
			checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
		}
		_ = conn.Close()
	}
}

// A certificate that expires ends what was opened with it.
func TestCertificateExpires(t *testing.T) {
	s := newTLSStation(t, certificateIdentities)
	brief := s.issuer.Issue("a", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(2500 * time.Millisecond) })
	stub := s.stub(t, brief)
	sub := openPatterns(t, stub, "**")
	lasting := openPatterns(t, s.stub(t, s.issuer.Issue("a2", nil), as("a")), "**")
	if got := publishCode(t, stub, "x"); got != codes.OK {
		t.Fatalf("published: %s", got)
	}
	sub.take(t, 1)
	lasting.take(t, 1)
	for {
		if _, err := sub.Recv(); err != nil {
			checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
			break
		}
	}
	// The connection stands, and is good for nothing any more.
	if got := publishCode(t, stub, "x"); got != codes.Unauthenticated {
		t.Errorf("published: %s", got)
	}
	publishCode(t, s.stub(t, certtest.Pair{}, as("a")), "x")
	lasting.take(t, 1)
}

// TestMaterialIsExchanged: new connections get the new certificate, those that stand miss nothing; an issuer that is gone takes with it
// whoever it has vouched for.
func TestMaterialIsExchanged(t *testing.T) {
	s := newTLSStation(t, certificateIdentities)
	a := s.issuer.Issue("a", nil)
	writer := s.stub(t, certtest.Pair{}, as("a"))
	byCertificate, byToken := openPatterns(t, s.stub(t, a), "**"), openPatterns(t, writer, "**")

	fresh := s.issuer.Issue("broker", nil)
	s.side.Use(material(t, fresh, s.issuer.CA))
	s.server.UseClientCAs(material(t, fresh, s.issuer.CA).Pool())
	if got := servedSerial(t, s); got != fresh.Serial {
		t.Errorf("serial %d is served, want %d", got, fresh.Serial)
	}
	for range 10 {
		if n := publishOne(t, writer, "x", nil); n != 2 {
			t.Errorf("%d receivers", n)
		}
	}
	byCertificate.take(t, 10)
	byToken.take(t, 10)

	old := s.stub(t, a)
	if got := publishCode(t, old, "x"); got != codes.OK {
		t.Fatalf("published: %s", got)
	}
	m := material(t, fresh, certtest.New(t).CA)
	s.side.Use(m)
	s.server.UseClientCAs(m.Pool())
	for {
		if _, err := byCertificate.Recv(); err != nil {
			checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
			break
		}
	}
	if got := publishCode(t, old, "x"); got != codes.Unauthenticated {
		t.Errorf("on a connection that stands: %s", got)
	}
	if got := publishCode(t, s.stub(t, a), "x"); got != codes.Unavailable {
		t.Errorf("on a new connection: %s", got)
	}
	if n := publishOne(t, writer, "x", nil); n != 1 {
		t.Errorf("%d receivers", n)
	}
	byToken.take(t, 2)
}

// TestCertificateAlone: where no identities are known, and a certificate lets in to everything, it does so only for as long as it is good:
// neither an open stream nor a connection that stands outlives it.
func TestCertificateAlone(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(s *tlsStation) // nil: it expires
	}{
		{"expires", nil},
		{"issuer goes", func(s *tlsStation) { s.server.UseClientCAs(material(t, certtest.Pair{}, certtest.New(t).CA).Pool()) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newTLSStation(t, "")
			pair := s.issuer.Issue("a", func(c *x509.Certificate) {
				if test.end == nil {
					c.NotAfter = time.Now().Add(2500 * time.Millisecond)
				}
			})
			stub := s.stub(t, pair)
			sub := openPatterns(t, stub, "**")
			member := open(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"x"}, ConsumerGroup: "g"})
			if n := publishOne(t, stub, "x", nil); n != 2 {
				t.Errorf("%d receivers", n)
			}
			sub.take(t, 1)
			member.take(t, 1)
			if test.end != nil {
				s.server.UseClientCAs(material(t, certtest.Pair{}, s.issuer.CA).Pool()) // the same again: nobody notices
				publishOne(t, stub, "x", nil)
				sub.take(t, 1)
				test.end(s)
			}
			for _, stream := range []*stockStream{sub, member} {
				for {
					if _, err := stream.Recv(); err != nil {
						checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
						break
					}
				}
			}
			if got := publishCode(t, stub, "x"); got != codes.Unauthenticated {
				t.Errorf("on a connection that stands: %s", got)
			}
		})
	}
}

// servedSerial is the serial number of the certificate that a new connection is shown.
func servedSerial(t testing.TB, s *tlsStation) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", s.addr, auth.ClientTLS(material(t, certtest.Pair{}, s.issuer.CA), "localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// always is for a client whose certificates stay the same.
func always(c *tls.Config) func() *tls.Config { return func() *tls.Config { return c } }

// TestClientWithTLS: our client with certificates and tokens, and what it says when they will not do.
func TestClientWithTLS(t *testing.T) {
	s := newTLSStation(t, certificateIdentities)
	trusting := auth.ClientTLS(material(t, certtest.Pair{}, s.issuer.CA), "")
	token := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	c, err := Dial(t.Context(), ClientOptions{Target: s.addr, TLS: always(trusting), Token: token("a")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sub := subscribe(t, c, SubscribeOptions{Patterns: []string{"x"}})
	if n, err := c.Publish(within(t, 5*time.Second), &core.Message{Topic: "x"}, 0); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	sub.take(t, 1)
	s.server.UseIdentities(identitiesOf(t, strings.Replace(certificateIdentities, "HASH:a", "HASH:z", 1)))
	var ended *core.EndedError
	if err := <-sub.result; !errors.As(err, &ended) || ended.Reason != core.EndRevoked {
		t.Errorf("ended with %v", err)
	}
	if _, err := c.Publish(within(t, 5*time.Second), &core.Message{Topic: "x"}, 0); !errors.Is(err, core.ErrUnauthenticated) {
		t.Errorf("%v", err)
	}
	if _, err := c.Publisher(within(t, 5*time.Second), PublisherOptions{}); !errors.Is(err, core.ErrUnauthenticated) {
		t.Errorf("%v", err)
	}

	strict := newTLSStation(t, "") // wants a certificate of everybody
	stranger := certtest.New(t)
	for _, test := range []struct {
		name string
		o    ClientOptions
		want string
	}{
		{"no trust", ClientOptions{Target: s.addr, TLS: always(&tls.Config{MinVersion: tls.VersionTLS12})}, "TLS: failed to verify certificate: x509: certificate signed by unknown authority"},
		{"another name", ClientOptions{Target: s.addr, TLS: always(auth.ClientTLS(material(t, certtest.Pair{}, s.issuer.CA), "elsewhere"))}, "TLS: failed to verify certificate: x509: certificate is valid for localhost, not elsewhere"},
		{"no TLS", ClientOptions{Target: s.addr}, "TLS mismatch: the server does not speak plaintext HTTP/2; it may expect TLS"},
		{"no certificate", ClientOptions{Target: strict.addr, TLS: always(auth.ClientTLS(material(t, certtest.Pair{}, strict.issuer.CA), ""))}, CauseNoCertificate},
		{"somebody else's", ClientOptions{Target: strict.addr, TLS: always(auth.ClientTLS(material(t, stranger.Issue("a", nil), strict.issuer.CA), ""))}, CauseBadCertificate},
	} {
		_, err := Dial(t.Context(), test.o)
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || unreachable.Err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	known, err := Dial(t.Context(), ClientOptions{Target: strict.addr, TLS: always(auth.ClientTLS(material(t, strict.issuer.Issue("anybody", nil), strict.issuer.CA), ""))})
	if err != nil {
		t.Fatal(err)
	}
	defer known.Close()
	if _, err := known.Stats(within(t, 5*time.Second)); err != nil {
		t.Errorf("with a certificate and no auth file: %v", err)
	}
}

// A token goes over TLS, to a socket or to this machine, and nowhere else.
func TestTokenInClear(t *testing.T) {
	asked := false
	token := func() (string, error) { asked = true; return "secret", nil }
	for _, target := range []string{"broker.example:7710", "10.0.0.1:7710", "dns:///broker.example:1", "passthrough:///127.0.0.1:1", "127.0.0.1.example:1"} {
		if _, err := Dial(t.Context(), ClientOptions{Target: target, Token: token}); !errors.Is(err, ErrTokenInClear) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if asked {
		t.Error("the token was asked for")
	}
}

// A token that cannot be read is an error of the call, and one that was exchanged in its file is used from then on.
func TestTokenIsReadAnew(t *testing.T) {
	s := guarded(t, certificateIdentities)
	path := filepath.Join(t.TempDir(), "token")
	c, err := Dial(t.Context(), ClientOptions{Target: s.addr, Token: func() (string, error) {
		data, err := os.ReadFile(path)
		return string(data), err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, test := range []struct {
		token string
		want  error
	}{{"", nil}, {"a", nil}, {"bad", core.ErrUnauthenticated}, {"a", nil}} {
		if test.token != "" {
			if err := os.WriteFile(path, []byte(test.token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := c.Publish(within(t, 5*time.Second), &core.Message{Topic: "x"}, 0)
		if i == 0 {
			var u *UnreachableError // it was not sent at all
			if !errors.As(err, &u) || !strings.HasPrefix(u.Err.Error(), "no token: open ") {
				t.Errorf("without a token: %v", err)
			}
			continue
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%d: %v, want %v", i, err, test.want)
		}
	}
	if text := fmt.Sprint(s.log.with(t, "call refused")); strings.Contains(text, "bad") {
		t.Errorf("the log has a token: %s", text)
	}
}

// TestRequestsAreSeenThroughTLS: what travels encrypted is accounted for just the same.
func TestRequestsAreSeenThroughTLS(t *testing.T) {
	station := newTLSStation(t, "")
	stub := station.stub(t, station.issuer.Issue("somebody", nil))
	sub := openPatterns(t, stub, "a")
	stream := openPublisher(t, stub)
	for range 20 {
		sendFrame(t, stream, &tinybrokerv1.Message{Topic: "a", Payload: make([]byte, 100_000)})
		receipt(t, stream)
		sub.take(t, 1)
	}
	in := station.server.inbound
	eventually(t, "two calls are known, and nothing is held", func() bool { return in.calls.Load() == 2 && in.held.Load() == 0 })
	conn := station.server.connections
	conn.mu.Lock()
	defer conn.mu.Unlock()
	for c := range conn.conns {
		c.inflow.mu.Lock()
		if n := len(c.inflow.calls); n != 2 {
			t.Errorf("%d calls are known of the connection", n)
		}
		c.inflow.mu.Unlock()
	}
}

// TestRefusedHandshakes: the log says who was refused and why, and nothing of those who only look whether somebody listens.
func TestRefusedHandshakes(t *testing.T) {
	s := newTLSStation(t, "") // wants a certificate
	const line = "handshake refused"
	refused := func(n int, why string) {
		t.Helper()
		eventually(t, why, func() bool { return len(s.log.with(t, line)) == n })
		last := s.log.with(t, line)[n-1]
		if text, _ := last["why"].(string); !strings.Contains(text, why) || len(text) > maxText || last["level"] != "WARN" {
			t.Errorf("%v, want %s", last, why)
		}
		if peer, _ := last["peer"].(string); !strings.HasPrefix(peer, "127.0.0.1:") {
			t.Errorf("peer %q", peer)
		}
	}
	publishCode(t, s.stub(t, s.issuer.Issue("a", nil)), "x")
	for _, c := range silence(t, s.station, "", "\x16\x03") { // beginnings of a greeting, and nothing
		_ = c.Close()
	}
	eventually(t, "those who say nothing are gone", func() bool { return s.server.connections.all() == 1 })
	for i, c := range []struct {
		why     string
		connect func()
	}{
		{"client didn't provide a certificate", func() { publishCode(t, s.stub(t, certtest.Pair{}), "x") }},
		{"unknown authority", func() {
			other := certtest.New(t).Issue("a", nil)
			config := auth.ClientTLS(material(t, other, s.issuer.CA), "localhost")
			c, err := tls.Dial("tcp", s.addr, config)
			if err == nil {
				_, _ = c.Read(make([]byte, 1)) // with TLS 1.3 the refusal comes behind the handshake
				_ = c.Close()
			}
		}},
		{"offers no HTTP/2", func() {
			config := auth.ClientTLS(material(t, s.issuer.Issue("a", nil), s.issuer.CA), "localhost")
			config.NextProtos = nil
			c, err := tls.Dial("tcp", s.addr, config)
			if err == nil {
				_ = c.Close()
			}
		}},
		{"it speaks HTTP/1", func() {
			c, err := tls.Dial("tcp", s.addr, auth.ClientTLS(material(t, s.issuer.Issue("a", nil), s.issuer.CA), "localhost"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n")) // one that lies about its protocol
			_ = c.Close()
		}},
		{"does not look like a TLS handshake", func() { silence(t, s.station, "GET / HTTP/1.1\r\n\r\n") }},
		{"bad certificate", func() {
			c, err := tls.Dial("tcp", s.addr, auth.ClientTLS(material(t, certtest.Pair{}, certtest.New(t).CA), "localhost"))
			if err == nil {
				_ = c.Close()
			}
		}},
	} {
		c.connect()
		refused(i+1, c.why)
	}
}
