package main

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestListenErrors: what another broker may be the cause of is 69, what has to be configured otherwise 78.
func TestListenErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{syscall.EADDRINUSE, exitUnavailable}, {errNotSocket, exitUnavailable},
		{syscall.EACCES, exitConfig}, {syscall.EADDRNOTAVAIL, exitConfig}, {syscall.ENOENT, exitConfig},
	} {
		var exit *exitError
		if err := listenError("127.0.0.1:80", &net.OpError{Op: "listen", Err: c.err}); !errors.As(err, &exit) || exit.code != c.want {
			t.Errorf("%v: %v, want code %d", c.err, err, c.want)
		}
	}
}
