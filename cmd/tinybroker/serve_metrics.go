package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/metrics"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// metricsOff is the metrics address of a broker that serves no pages.
const metricsOff = "off"

func (o *serveOptions) hasPages() bool { return o.metricsListen != metricsOff && o.metricsListen != "" }

// checkPages refuses a metrics address that cannot be listened on, or must not be without saying so: the pages ask nobody who he is.
func (o *serveOptions) checkPages() error {
	if !o.hasPages() {
		if o.pprof {
			return fmt.Errorf("pprof: profiles are served on metrics_listen, which is off")
		}
		return nil
	}
	return checkListen("metrics_listen", o.metricsListen, o.insecure, "can be reached from other machines, and metrics are shown to whoever asks:")
}

// listenAll binds every address of serve or none. The listener of the pages is nil when there are none.
func (o *serveOptions) listenAll() (listeners []net.Listener, pages net.Listener, err error) {
	listeners, err = listenAll(o.listen, o.socketMode)
	if err != nil || !o.hasPages() {
		return listeners, nil, err
	}
	pages, err = listen(o.metricsListen, o.socketMode)
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		told := listenError(o.metricsListen, err)
		if isAddressInUse(err) {
			told = withHint(told, "--metrics-listen takes another address, or off")
		}
		return nil, nil, told
	}
	return listeners, pages, nil
}

// pages are what serve shows over HTTP, for as long as it runs; also while it drains.
type pages struct {
	metrics.Pages
	listener net.Listener
	serving  atomic.Bool // clients can connect
}

// newPages returns the pages of a broker; without a listener it returns nil.
func newPages(o *serveOptions, listener net.Listener, broker *core.Broker, server *rpc.Server, log *slog.Logger) (*pages, error) {
	if listener == nil {
		return nil, nil
	}
	p := &pages{listener: listener}
	registry, err := metrics.NewRegistry(broker, server, metrics.Build{Version: buildVersion(), GoVersion: runtime.Version()})
	if err != nil {
		return nil, err
	}
	p.Pages = metrics.Pages{Metrics: registry, Profiles: o.pprof, Logger: log, Ready: func() bool {
		select {
		case <-broker.Draining():
			return false
		default:
			return p.serving.Load()
		}
	}}
	return p, nil
}

// url is where the pages are.
func (p *pages) url() string {
	address := addressOf(p.listener)
	if strings.HasPrefix(address, "unix:") {
		return "http+" + address
	}
	return "http://" + address
}

// announce says where the pages are.
func (p *pages) announce(o *serveOptions, log *slog.Logger) {
	if loopback, err := isLoopback(o.metricsListen); err == nil && !loopback {
		log.Warn("metrics are shown to whoever asks, on an address that other machines may reach", "metrics_listen", o.metricsListen)
	}
	log.Info("metrics on "+p.url(), "address", p.url())
}

// run serves the pages until ctx ends.
func (p *pages) run(ctx context.Context) error { return p.Serve(ctx, p.listener) }
