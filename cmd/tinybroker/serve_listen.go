package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// socketPath is the path of a unix socket given as unix:///path, unix:path or /path.
func socketPath(address string) (string, bool) {
	switch {
	case strings.HasPrefix(address, "unix://"):
		return strings.TrimPrefix(address, "unix://"), true
	case strings.HasPrefix(address, "unix:"):
		return strings.TrimPrefix(address, "unix:"), true
	}
	return address, strings.HasPrefix(address, "/")
}

// checkAddress refuses what is no address to listen on.
func checkAddress(setting, address string) error {
	if path, ok := socketPath(address); ok {
		if path == "" || strings.HasPrefix(address, "unix://") && !strings.HasPrefix(path, "/") {
			return fmt.Errorf("%s: %q names no absolute path; write unix:///run/tinybroker.sock", setting, address)
		}
		if strings.HasPrefix(path, "@") {
			return fmt.Errorf("%s: %q: an abstract socket has no mode, so anybody could use it; give a path", setting, address)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s: %q is not host:port or unix:///path%s", setting, address, meantListen(address))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%s: %q: there is no port %q; write its number", setting, address, port)
	}
	return nil
}

// checkListen refuses an address that cannot be listened on, or must not be without saying so.
// What speaks against an address that other machines reach is in the words of against.
func checkListen(setting, address string, allowed bool, against string) error {
	if err := checkAddress(setting, address); err != nil || allowed {
		return err
	}
	loopback, err := isLoopback(address)
	if err != nil {
		return failf(exitUnavailable, "%s: %q: %s", setting, address, rootCause(err)) // a name
	}
	if !loopback {
		return fmt.Errorf("%s: %q %s bind to 127.0.0.1, or allow it with --insecure (insecure: true)", setting, address, against)
	}
	return nil
}

// meantListen is what an address without its other half was probably meant to be.
func meantListen(address string) string {
	_, notPort := strconv.ParseUint(address, 10, 16)
	_, notIP := netip.ParseAddr(strings.Trim(address, "[]"))
	switch {
	case notPort == nil:
		return "; write 127.0.0.1:" + address
	case notIP == nil:
		return "; write " + net.JoinHostPort(strings.Trim(address, "[]"), rpc.DefaultPort)
	case address != "" && !strings.ContainsAny(address, ":/ "):
		return "; write " + net.JoinHostPort(address, rpc.DefaultPort)
	}
	return ""
}

// isLoopback reports whether only this machine reaches the address. A name counts if all its addresses do.
func isLoopback(address string) (bool, error) {
	if _, ok := socketPath(address); ok {
		return true, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, err
	}
	if host == "" {
		return false, nil // every address of the machine
	}
	ips := []net.IP{net.ParseIP(host)}
	if ips[0] == nil {
		if ips, err = net.LookupIP(host); err != nil {
			return false, err
		}
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false, nil
		}
	}
	return true, nil
}

// listenAll binds every address or none.
func listenAll(addresses []string, mode fs.FileMode) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, address := range addresses {
		l, err := listen(address, mode)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, listenError(address, err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func listen(address string, mode fs.FileMode) (net.Listener, error) {
	if path, ok := socketPath(address); ok {
		return listenUnix(path, mode)
	}
	return net.Listen(networkOf(address), address)
}

// networkOf keeps to IPv4 for an IPv4 address: to listen on 0.0.0.0 would otherwise mean every IPv6 address, too.
func networkOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// errSocketInUse: somebody listens on the socket.
var errSocketInUse = errors.New("address already in use")

// errNotSocket: something else than a socket is in the way, and it is not ours to remove.
var errNotSocket = errors.New("a file that is not a socket is in the way")

// socketListener takes its socket file away when it is closed, if it is still its own.
type socketListener struct {
	*net.UnixListener
	file ownFile
}

// Close implements net.Listener.
func (l *socketListener) Close() error {
	l.file.remove()
	return l.UnixListener.Close()
}

// listenUnix binds a socket that those can use whom mode allows to. A socket file that a killed broker left behind is removed;
// one that somebody listens on is not. Brokers do so one after the other: what looks left behind may be what another has bound in this moment.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	defer lockDirectory(filepath.Dir(path))()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	restore := privateUmask()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	restore()
	if err != nil {
		return nil, err
	}
	err = os.Chmod(path, mode)
	var file ownFile
	if err == nil {
		file, err = claim(path)
	}
	if err != nil {
		_ = l.Close() // never used
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return &socketListener{l, file}, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errNotSocket
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return errSocketInUse
	}
	if errors.Is(err, fs.ErrPermission) {
		return err // somebody else's
	}
	if errors.Is(err, syscall.EAGAIN) || os.IsTimeout(err) {
		return errSocketInUse // by somebody who has no room for one more, or has been stopped
	}
	return os.Remove(path)
}

func isSocketAddress(address string) bool {
	_, ok := socketPath(address)
	return ok
}

// anotherAddress says how to get out of the way of who listens on address.
func anotherAddress(address string) string {
	if isSocketAddress(address) {
		return "--listen takes another path"
	}
	return "--listen 127.0.0.1:0 takes any free port"
}

func listenError(address string, err error) error {
	switch {
	case isAddressInUse(err):
		return &exitError{
			code: exitUnavailable, err: fmt.Errorf("listen on %s: address already in use; is another tinybroker running?", address),
			hint: fmt.Sprintf("tinybroker status -s %s tells; %s", address, anotherAddress(address)),
		}
	case isAddressMissing(address, err):
		return withHint(failf(exitUnavailable, "listen on %s: %s", address, rootCause(err)), "no network interface of this machine has that address")
	case isUnresolved(err):
		return failf(exitUnavailable, "listen on %s: %s", address, rootCause(err))
	case errors.Is(err, errNotSocket):
		return failf(exitUnavailable, "listen on %s: %s", address, rootCause(err))
	case errors.Is(err, syscall.EINVAL) && isSocketAddress(address):
		return failf(exitConfig, "listen on %s: the path of a unix socket is at most about 100 bytes long", address)
	}
	return failf(exitConfig, "listen on %s: %s", address, rootCause(err))
}

// isAddressMissing reports whether the machine has not got the address. While it boots, that may be a matter of moments, and so may be
// a name that is not known yet.
func isAddressMissing(address string, err error) bool {
	ofInterface := strings.Contains(address, "%") // EINVAL is how an interface that is not there shows
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EINVAL) && ofInterface && !isSocketAddress(address)
}

func isUnresolved(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// addressOf is what a client gives to --server to reach l.
func addressOf(l net.Listener) string {
	if a, ok := l.Addr().(*net.UnixAddr); ok {
		if path, err := filepath.Abs(a.Name); err == nil {
			return "unix://" + path
		}
		return "unix:" + a.Name
	}
	return l.Addr().String()
}
