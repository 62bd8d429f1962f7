//go:build unix

package main

import (
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A proxy that answers every call with a status of its own, in place of a broker.
func startMiddle(t *testing.T, code codes.Code) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(code, "from the middle") }))
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// Nobody has asked for an end, so whatever is cancelled by what is in between is no success.
func TestCancelledInBetween(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable} {
		address := startMiddle(t, code)
		for _, args := range [][]string{
			{"status"}, {"status", "-q"}, {"ls", "subs"}, {"top", "--once"},
			{"sub", "x"}, {"sub", "x", "-n", "1"}, {"sub", "x", "-g", "g"}, {"pub", "x", "y"}, {"pub", "x"},
			{"bench", "--msgs", "1"},
		} {
			p := start(t, append(args, "-s", address), reading(strings.NewReader("a\nb\n")))
			p.ended(exitUnavailable)
			got := p.stderr.String()
			if !strings.Contains(got, "cannot reach broker at "+address+": from the middle") || strings.Count(got, "\n") != 1 || p.stdout.String() != "" {
				t.Errorf("%v, %q: %q", code, args, got)
			}
		}
	}
}

// An answer without anything in it is told as that.
func TestEmptyAnswer(t *testing.T) {
	t.Parallel()
	address := startMiddle(t, codes.OK)
	for _, args := range [][]string{{"ls", "subs"}, {"top", "--once"}, {"sub", "x"}, {"pub", "x", "y"}} {
		p := start(t, append(args, "-s", address))
		p.ended(exitOther)
		if got := p.stderr.String(); !strings.HasSuffix(got, "the broker ended the stream without a reason\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("%q: %q", args, got)
		}
	}
}

// What gRPC would write to standard error by itself is not there: a broker that complains of too many pings is the cause of an error, in one line.
func TestTransportIsSilent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f := http2.NewFramer(conn, conn)
			_, err = io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
			if err == nil {
				err = f.WriteSettings()
			}
			if err == nil {
				err = f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
			}
			if err == nil {
				_, err = io.Copy(io.Discard, conn)
			}
			t.Log("the client has gone:", err)
			conn.Close()
		}
	}()
	p := start(t, []string{"sub", "-q", "x", "-s", l.Addr().String(), "--connect-timeout", "2s"})
	p.ended(exitUnavailable)
	if got := p.stderr.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "tinybroker: cannot reach broker at ") {
		t.Errorf("%q", got)
	}
	l.Close()
	<-ended
}
