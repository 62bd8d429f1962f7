package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// defaultAddress is where a broker listens, and where its clients look for it, unless told otherwise.
const defaultAddress = "127.0.0.1:" + rpc.DefaultPort

// clientOptions are what all commands that talk to a broker have in common.
type clientOptions struct {
	server           string
	configPath       string
	connectTimeout   time.Duration
	reconnectTimeout time.Duration
	noReconnect      bool
	wait             bool
	quiet            bool
	verbose          bool
	color            string
	security         clientSecurity
}

func newClientOptions() *clientOptions {
	return &clientOptions{server: defaultAddress, connectTimeout: 5 * time.Second, color: "auto"}
}

func (o *clientOptions) addFlags(to *pflag.FlagSet) {
	fs := pflag.NewFlagSet(sectionClient, pflag.ContinueOnError)
	fs.StringVarP(&o.server, "server", "s", o.server, "broker's `address`: host:port, unix:///path or dns:///name:port")
	o.security.addFlags(fs)
	fs.Var(span(&o.connectTimeout, time.Millisecond, longest), "connect-timeout", "how long to try to reach the broker at the start")
	fs.Var(span(&o.reconnectTimeout, 0, longest), "reconnect-timeout", "how long to try to get a lost connection back; 0: for ever")
	addBool(fs, &o.noReconnect, "no-reconnect", "", "a lost connection is an error at once")
	addBool(fs, &o.wait, "wait", "", "keep trying to reach the broker at the start, for ever")
	addBool(fs, &o.quiet, "quiet", "q", "print errors only")
	addBool(fs, &o.verbose, "verbose", "v", "tell more, and about each message, on standard error")
	fs.Var(choice(&o.color, "auto", "always", "never"), "color", "`when` to use colour: auto, always or never")
	inSection(fs, sectionClient)
	fs.StringVar(&o.configPath, "config", "", configUsage)
	to.AddFlagSet(fs)
}

func (o *clientOptions) notices(s *streams) *notices {
	return &notices{w: s.err, quiet: o.quiet, verbose: o.verbose}
}

// dial reaches the broker or says why not. What happens to the connection later is told to n, and to l.
func (o *clientOptions) dial(ctx context.Context, n *notices, l *link) (*rpc.Client, error) {
	options := rpc.ClientOptions{
		Target:           o.server,
		ConnectTimeout:   o.connectTimeout,
		Wait:             o.wait,
		ReconnectTimeout: o.reconnectTimeout,
		NoReconnect:      o.noReconnect,
		OnConnection: func(e rpc.ConnectionEvent) {
			if !e.Waiting {
				l.up.Store(!e.Lost)
			}
			if e.Lost && l.lost != nil {
				l.lost()
			}
			o.tellConnection(n, e)
		},
	}
	if _, err := leaving(ctx, 0, func() error { return o.security.apply(&options, n) }); err != nil {
		return nil, err
	}
	c, err := rpc.Dial(ctx, options)
	if err != nil {
		return nil, o.dialError(ctx, err)
	}
	l.up.Store(true)
	return c, nil
}

// link knows whether there is a connection. It is safe for concurrent use.
type link struct {
	up   atomic.Bool
	lost func() // called each time the connection is lost; may be nil
}

func (o *clientOptions) tellConnection(n *notices, e rpc.ConnectionEvent) {
	switch {
	case e.Lost:
		n.info("connection lost (%s); retrying", e.Err)
	case e.Waiting:
		n.info("waiting for broker at %s: %s%s", o.server, e.Err, o.security.tlsAdvice(e.Err.Error()))
	default:
		n.info("reconnected after %s", roughDuration(e.Outage))
	}
}

// dialError is the one line that says why there is no connection, and what to do when the broker is simply not running.
func (o *clientOptions) dialError(ctx context.Context, err error) error {
	var u *rpc.UnreachableError
	switch {
	case errors.As(err, &u):
	case tokenError(err) != nil:
		return tokenError(err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return failf(exitUsage, "%w", err) // the address cannot be parsed
	}
	cause := u.Err.Error()
	text := fmt.Sprintf("cannot reach broker at %s: %s%s", o.server, cause, o.security.tlsAdvice(cause))
	if isRefusedCertificate(cause) {
		return failf(exitAuth, "%s", text)
	}
	if listen := rpc.ListenAddress(o.server); listen != "" && (cause == "connection refused" || cause == "no such socket") {
		text += ". Start one with: " + serveCommand(listen)
	} else if !rpc.IsLocal(o.server) && (cause == "connection refused" || cause == "timed out") {
		// The usual reason on another machine, and one that nobody sees there.
		return withHint(failf(exitUnavailable, "%s", text), "a broker can be reached from other machines only where --listen says so")
	}
	return failf(exitUnavailable, "%s", text)
}

// serveCommand starts a broker that listens on an address.
func serveCommand(address string) string {
	if address == defaultAddress {
		return "tinybroker serve"
	}
	return "tinybroker serve --listen " + address
}

// userAtHost is what people recognise a client by.
func userAtHost() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}
