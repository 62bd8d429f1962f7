package main

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

// TestListenErrors: what another broker may be the cause of is 69, and so is an address or a name that is not there yet; what has to be
// configured otherwise is 78.
func TestListenErrors(t *testing.T) {
	const address = "127.0.0.1:80"
	for _, c := range []struct {
		address string
		err     error
		want    int
	}{
		{address, syscall.EADDRINUSE, exitUnavailable}, {address, errNotSocket, exitUnavailable},
		{address, syscall.EADDRNOTAVAIL, exitUnavailable}, {"broker:80", &net.DNSError{Err: "no such host", IsNotFound: true}, exitUnavailable},
		{"[fe80::1%eth9]:80", syscall.EINVAL, exitUnavailable}, {address, syscall.EINVAL, exitConfig}, {"unix:///a%b", syscall.EINVAL, exitConfig},
		{address, syscall.EACCES, exitConfig}, {address, syscall.ENOENT, exitConfig},
	} {
		var exit *exitError
		if err := listenError(c.address, &net.OpError{Op: "listen", Err: c.err}); !errors.As(err, &exit) || exit.code != c.want {
			t.Errorf("%s: %v: %v, want code %d", c.address, c.err, err, c.want)
		}
	}
}

// TestAddressThatIsNotThereYet: an address that no interface has, and a name that nobody knows, are no mistakes of the configuration. A broker
// that a service manager starts while the machine boots is to be started again.
func TestAddressThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--listen", "192.0.2.1:7710", "--insecure"}, exitUnavailable, "listen on 192.0.2.1:7710: "},
		{[]string{"--listen", "broker.invalid:7710", "--insecure"}, exitUnavailable, "listen on broker.invalid:7710: "},
		{[]string{"--listen", "broker.invalid:7710"}, exitUnavailable, `listen: "broker.invalid:7710": `},
		{[]string{"--listen", "127.0.0.1:0", "--metrics-listen", "broker.invalid:7710"}, exitUnavailable, `metrics_listen: "broker.invalid:7710": `},
		{[]string{"--listen", "broker.invalid:7710", "--pprof"}, exitConfig, "pprof: profiles are served on metrics_listen, which is off"},
	} {
		p := start(t, append([]string{"serve"}, c.args...))
		p.ended(c.code)
		if got := p.stderr.String(); !strings.Contains(got, "tinybroker: "+c.want) {
			t.Errorf("%q: %q", c.args, got)
		}
	}
}

// TestListenOnEveryAddress: 0.0.0.0 is IPv4 alone; [::] and no host at all are both. The address file says what was asked for.
func TestListenOnEveryAddress(t *testing.T) {
	t.Parallel()
	probe, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	probe.Close()
	for listen, want := range map[string]struct {
		host string
		v6   bool
	}{"0.0.0.0:0": {"0.0.0.0", false}, "[::]:0": {"::", true}, ":0": {"::", true}} {
		b := startBroker(t, "--listen", listen, "--insecure")
		host, port, err := net.SplitHostPort(strings.Split(b.address, "\n")[1])
		if err != nil || host != want.host || port == "0" {
			t.Errorf("%s: the address file says %q", listen, b.address)
		}
		start(t, []string{"status", "-q", "-s", "127.0.0.1:" + port}).ended(0)
		conn, err := net.Dial("tcp6", "[::1]:"+port)
		if (err == nil) != want.v6 {
			t.Errorf("%s: by IPv6: %v", listen, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}
