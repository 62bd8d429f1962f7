package rpc

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// DefaultPort is where a broker listens unless told otherwise, and where a target without a port is looked for.
const DefaultPort = "7710"

// target is where a broker is, in gRPC's spelling.
type target struct {
	uri   string
	host  string // host:port; empty for anything but DNS names and IP addresses
	local bool   // on this machine for certain: a unix socket or a loopback address
}

// parseTarget reads "host:port", "host", "unix:///path", "unix:path", "/path" and "dns:///host:port".
func parseTarget(s string) (target, error) {
	scheme, rest, hasScheme := strings.Cut(s, ":")
	switch {
	case s == "":
		return target{}, fmt.Errorf("no address given")
	case strings.HasPrefix(s, "/"):
		return target{uri: "unix://" + s, local: true}, nil
	case hasScheme && (scheme == "unix" || scheme == "unix-abstract"):
		if strings.Trim(rest, "/") == "" {
			return target{}, fmt.Errorf("%q names no socket", s)
		}
		if strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "///") {
			return target{}, fmt.Errorf("%q names no absolute path; write unix:///run/tinybroker.sock, or unix:path", s)
		}
		return target{uri: s, local: true}, nil
	case hasScheme && scheme == "passthrough":
		return target{uri: s}, nil
	case hasScheme && scheme == "dns":
		authority, name, ok := cutAuthority(rest)
		if !ok {
			return target{}, fmt.Errorf("%q names no host", s)
		}
		t, err := parseHost(name)
		t.uri = "dns:" + authority + t.host
		return t, err
	case strings.Contains(s, "://"):
		return target{}, fmt.Errorf("%q: unknown scheme %q; use host:port, unix:///path or dns:///host:port", s, scheme)
	}
	return parseHost(s)
}

// cutAuthority parts "//server/name", "///name" and "name".
func cutAuthority(s string) (authority, name string, ok bool) {
	if !strings.HasPrefix(s, "//") {
		return "", s, s != ""
	}
	server, name, ok := strings.Cut(s[2:], "/")
	return "//" + server + "/", name, ok && name != ""
}

func parseHost(s string) (target, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		// No port, or an IPv6 address without brackets.
		host, port = strings.Trim(s, "[]"), DefaultPort
		if _, notIP := netip.ParseAddr(host); notIP != nil && strings.Contains(host, ":") {
			return target{}, fmt.Errorf("%q is not host:port", s)
		}
		if _, err := strconv.ParseUint(host, 10, 16); err == nil {
			return target{}, fmt.Errorf("%q is not host:port; write 127.0.0.1:%s", s, host)
		}
	}
	if host == "" {
		host = "localhost"
	}
	if port == "" || strings.ContainsAny(host, "/ ") {
		return target{}, fmt.Errorf("%q is not host:port", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return target{}, fmt.Errorf("%q: there is no port %q", s, port)
	}
	address := net.JoinHostPort(host, port)
	return target{uri: "dns:///" + address, host: address, local: isLoopback(host)}, nil
}

// isLoopback reports whether host is a loopback address or a name for one. That names below "localhost" are, too, is a rule (RFC
// 6761), but not every resolver keeps to it: dialLoopback makes sure.
func isLoopback(host string) bool {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// dialLoopback connects to an address that must be this machine's, whatever the name of a local target has been resolved to: what
// is for this machine only, such as a token without TLS, must not leave it.
func dialLoopback(ctx context.Context, address string) (net.Conn, error) {
	if ap, err := netip.ParseAddrPort(address); err != nil || !ap.Addr().Unmap().IsLoopback() {
		return nil, fmt.Errorf("a name for this machine was resolved to %s, which is not", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// IsLocal reports whether a broker at target is on this machine for certain: whether what is sent there stays off the
// network. Targets that cannot be parsed are not local.
func IsLocal(s string) bool {
	t, err := parseTarget(s)
	return err == nil && t.local
}

// ListenAddress is what a broker has to listen on for a target on this machine to reach it; empty: the target is elsewhere, or a broker
// cannot listen there.
func ListenAddress(s string) string {
	t, err := parseTarget(s)
	switch {
	case err != nil || !t.local || strings.HasPrefix(s, "unix-abstract:"):
		return ""
	case t.host == "":
		return s
	}
	return t.host
}

// proxy returns the proxy that the environment sets for t, without its credentials, or "".
func (t target) proxy() string {
	if t.local || t.host == "" {
		return ""
	}
	u, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: t.host}})
	if err != nil || u == nil {
		return ""
	}
	return u.Host
}
