package rpc

import (
	"strings"

	"google.golang.org/grpc/status"
)

// The causes that lie in the client's certificate. A broker that does not take it says so in the handshake.
const (
	CauseNoCertificate  = "TLS: the broker wants a client certificate"
	CauseBadCertificate = "TLS: the broker does not take the client certificate"
)

// causeNoHTTP2 is mostly a web server or a proxy that was not told to speak HTTP/2 at this address.
const causeNoHTTP2 = "TLS: what answers does not agree to HTTP/2 (ALPN h2)"

// causes says in short words what gRPC's texts about connections mean. gRPC hands the reasons on as text only. The first
// entry whose mark is in the text applies.
var causes = []struct{ mark, cause string }{
	{"connection refused", "connection refused"},
	{"produced zero addresses", "no such host"},
	{"no such host", "no such host"},
	{"no such file or directory", "no such socket"},
	{"permission denied", "permission denied"},
	{"network is unreachable", "network is unreachable"},
	{"no route to host", "no route to host"},
	{"i/o timeout", "timed out"},
	{"deadline exceeded", "timed out"},
	{"use of closed network connection", "timed out"}, // closed at this end, since nothing came
	{"remote error: tls: certificate required", CauseNoCertificate},
	{"remote error: tls: bad certificate", CauseBadCertificate},
	{"remote error: tls: unknown certificate authority", CauseBadCertificate},
	{"remote error: tls: expired certificate", CauseBadCertificate},
	{noALPN, causeNoHTTP2},
	{"remote error: tls: no application protocol", causeNoHTTP2},
	{"looked like an HTTP/1.1 header", "not a gRPC server: it answers in HTTP/1"},
	{"first record does not look like a TLS handshake", "TLS mismatch: the server does not speak TLS"},
	{"reading server preface", "TLS mismatch: the server does not speak plaintext HTTP/2; it may expect TLS"},
	{"keepalive ping failed", "no answer to keepalive"},
	{"too_many_pings", "cut off for too many pings"},
	{"connection reset by peer", "connection reset"},
	{"broken pipe", "connection closed"},
	// The same in the words of Windows.
	{"actively refused it", "connection refused"},
	{"did not properly respond after a period of time", "timed out"},
	{"forcibly closed by the remote host", "connection reset"},
	{"aborted by the software in your host machine", "connection closed"},
	{"error reading from server: EOF", "connection closed"},
	{"unexpected EOF", "connection closed"},
	{"transport is closing", "connection closed"},
	{streamCut, causeStreamCut},
	{"context canceled", "cancelled by the other end"},
}

const causeStreamCut = "stream closed without a status"

// wrappings are what gRPC puts before the text of a cause.
var wrappings = []string{
	`connection error: desc = "`,
	"transport: ",
	"Error while dialing: ",
	"error reading from server: ",
}

// connectionCause returns why a connection could not be made or was lost, in short words.
func connectionCause(err error) string {
	st := status.Convert(err)
	text := st.Message()
	if text == "" {
		return st.Code().String()
	}
	if strings.HasPrefix(text, noToken) {
		return boundText(text)
	}
	if code, ok := strings.CutPrefix(text, streamReset); ok {
		return "stream reset with " + boundText(code)
	}
	if answer, ok := strings.CutPrefix(text, httpAnswer); ok {
		answer, _, _ = strings.Cut(answer, ";")
		return "what is in between answers " + boundText(answer)
	}
	if strings.Contains(text, " record lookup error: ") && !strings.Contains(text, "no such host") {
		return "its name cannot be looked up: " + boundText(text[strings.LastIndex(text, ": ")+2:])
	}
	if text == streamTorn {
		return causeStreamCut
	}
	for _, c := range causes {
		if strings.Contains(text, c.mark) {
			return c.cause
		}
	}
	for _, w := range wrappings {
		if _, inner, ok := strings.Cut(text, w); ok {
			text = strings.TrimSuffix(inner, `"`)
		}
	}
	if _, inner, ok := strings.Cut(text, "authentication handshake failed: "); ok {
		text = "TLS: " + strings.TrimPrefix(inner, "tls: ")
	}
	return boundText(text)
}
