package rpc

import (
	"bytes"
	"errors"
	"slices"

	"golang.org/x/net/http2"
)

var preface = []byte(http2.ClientPreface)

// greeting looks at the first bytes of a connection, by which an HTTP/2 client tells what it is. The zero value is ready.
type greeting struct {
	matched int // bytes of the preface; all: there is nothing more to look at
}

// read goes on with b. It returns what the client speaks instead of HTTP/2, once, as soon as that is certain.
func (g *greeting) read(b []byte) error {
	rest := preface[g.matched:]
	b = b[:min(len(b), len(rest))]
	if bytes.HasPrefix(rest, b) {
		g.matched += len(b)
		return nil
	}
	said := slices.Concat(preface[:g.matched], b)
	g.matched = len(preface)
	return otherProtocol(said)
}

var (
	errSpeaksTLS   = errors.New("it speaks TLS, and this address is plaintext")
	errSpeaksProxy = errors.New("it begins with the PROXY protocol, which the broker does not speak")
	errSpeaksHTTP1 = errors.New("it speaks HTTP/1; gRPC needs HTTP/2")
	errSpeaksOther = errors.New("its first bytes are not those of HTTP/2")
)

// otherProtocol says what begins with b.
func otherProtocol(b []byte) error {
	method, _, isLine := bytes.Cut(b, []byte(" "))
	switch {
	case bytes.HasPrefix(b, []byte("\x16\x03")):
		return errSpeaksTLS
	case bytes.HasPrefix(b, []byte("PROXY ")), bytes.HasPrefix(b, []byte("\r\n\r\n\x00\r\nQUIT\n")):
		return errSpeaksProxy
	case isLine && len(method) > 2 && bytes.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == nil:
		return errSpeaksHTTP1
	}
	return errSpeaksOther
}
