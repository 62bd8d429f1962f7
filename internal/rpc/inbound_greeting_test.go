package rpc

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestGreeting: what is not HTTP/2 is known by its first bytes, in whatever pieces they come.
func TestGreeting(t *testing.T) {
	for said, want := range map[string]error{
		"":                                       nil,
		"PRI * HT":                               nil,
		http2.ClientPreface:                      nil,
		http2.ClientPreface + "GET / HTTP/1.1":   nil,
		"\x16\x03\x01\x02\x00\x01":               errSpeaksTLS,
		"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n": errSpeaksProxy,
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c": errSpeaksProxy,
		"GET / HTTP/1.1\r\n\r\n":                 errSpeaksHTTP1,
		"OPTIONS * HTTP/1.1\r\n\r\n":             errSpeaksHTTP1,
		"PRI * HTTP/1.1\r\n\r\n":                 errSpeaksHTTP1,
		" GET":                                   errSpeaksOther,
		"\x05\x01\x00":                           errSpeaksOther,
	} {
		var whole greeting
		if got := whole.read([]byte(said)); !errors.Is(got, want) {
			t.Errorf("%q: %v, want %v", said, got, want)
		}
		if got := whole.read([]byte("and on")); got != nil && want != nil {
			t.Errorf("%q: told twice: %v", said, got)
		}
		var pieces greeting
		told := 0
		for _, b := range []byte(said) {
			if pieces.read([]byte{b}) != nil {
				told++
			}
		}
		if (told != 0) != (want != nil) || told > 1 {
			t.Errorf("%q in pieces: told %d times", said, told)
		}
	}
}

// TestOtherProtocols: who speaks something else to a broker without TLS is told of in the log, and let go at once.
func TestOtherProtocols(t *testing.T) {
	s := newStation(t, nil)
	const line = "handshake refused"
	for i, c := range []struct{ said, why string }{
		{"\x16\x03\x01\x00\xf5\x01\x00\x00\xf1\x03\x03", errSpeaksTLS.Error()},
		{"PROXY TCP4 127.0.0.1 127.0.0.1 40000 7710\r\n" + http2.ClientPreface, errSpeaksProxy.Error()},
		{"GET / HTTP/1.0\r\n\r\n", errSpeaksHTTP1.Error()},
	} {
		conn := silence(t, s, c.said)[0]
		eventually(t, c.why, func() bool { return len(s.log.with(t, line)) == i+1 })
		last := s.log.with(t, line)[i]
		if peer, _ := last["peer"].(string); last["why"] != c.why || last["level"] != "WARN" || !strings.HasPrefix(peer, "127.0.0.1:") {
			t.Errorf("%v", last)
		}
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil; {
			if _, err = conn.Read(make([]byte, 1024)); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("%q: still connected", c.said)
			}
		}
	}
	silence(t, s, http2.ClientPreface[:10])[0].Close()
	eventually(t, "all are gone", func() bool { return s.server.connections.all() == 0 })
	if n := len(s.log.with(t, line)); n != 3 {
		t.Errorf("%d lines", n)
	}
}
