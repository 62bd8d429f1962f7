package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

func runServe(ctx context.Context, a *app, o *serveOptions) error {
	ignoreBrokenPipe()
	level := new(slog.LevelVar)
	lines := newLogWriter(a.err, newLogger(o, a.err, level))
	defer lines.close(logPatience)
	log := newLogger(o, lines, level)
	rpc.LogTransport(log)
	defer rpc.LogTransport(nil)
	if o.addrFile != "" {
		clearAddrFile(o.addrFile)
	}
	var guard *security
	switch left, err := leaving(ctx, 0, func() (err error) { guard, err = loadSecurity(o.files, log); return err }); {
	case left:
		return nil // a stop like any other
	case err != nil:
		return err
	}
	r, err := newRunning(o, guard, log)
	if err != nil {
		return err
	}
	r.start()
	defer tuneCollector(o.broker.MaxMemory)()
	defer giveBackMemory(r.broker.MemoryUsed, 5*time.Second)()
	reloads := newReloader(a, o, lines, level, guard.reloadables(r.server)...)
	reloads.stopping = ctx.Done()
	return r.untilStopped(ctx, a, lines, reloads)
}

// running is a broker and what it answers on.
type running struct {
	options   *serveOptions
	log       *slog.Logger
	broker    *core.Broker
	server    *rpc.Server
	listeners []net.Listener
	pages     *pages // nil: none

	loops     sync.WaitGroup
	failed    chan error // what a listener could not go on for; room for all of them
	stopPages context.CancelFunc
}

// newRunning listens, and takes no connection yet.
func newRunning(o *serveOptions, guard *security, log *slog.Logger) (*running, error) {
	guard.apply(&o.server)
	o.broker.Encoding = rpc.Encoding{}
	broker, err := core.New(o.broker)
	if err != nil {
		return nil, failf(exitConfig, "%w", err)
	}
	listeners, pagesListener, err := o.listenAll()
	if err != nil {
		return nil, err
	}
	o.server.Logger, o.server.Version = log, buildVersion()
	server := rpc.NewServer(broker, o.server)
	pages, err := newPages(o, pagesListener, broker, server, log)
	if err != nil {
		return nil, err
	}
	return &running{options: o, log: log, broker: broker, server: server, listeners: listeners, pages: pages}, nil
}

// start takes connections until stop.
func (r *running) start() {
	r.failed = make(chan error, len(r.listeners)+1) // one for the pages
	for _, l := range r.listeners {
		r.loops.Go(func() { r.failed <- r.server.Serve(l) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stopPages = cancel
	if r.pages != nil {
		r.loops.Go(func() { r.failed <- r.pages.run(ctx) })
	}
}

// untilStopped tells people on w, and the manager of services, how the broker fares, from its start to its end. It returns when all has
// ended; with an error when the broker could not go on.
func (r *running) untilStopped(ctx context.Context, a *app, w io.Writer, reloads *reloader) error {
	r.options.warn(r.log)
	addrFile, err := r.announce(w)
	manager := &supervisor{log: r.log}
	stopWatchdog := func() {}
	if err == nil {
		manager.ready(r.listeners)
		stopWatchdog = manager.watch(r.server.Probe)
		err = r.untilAsked(ctx, a, func() {
			manager.reloading()
			if ok := reloads.reload(); ctx.Err() == nil {
				manager.reloaded(ok)
			}
		})
	}
	manager.stopping(r.options.shutdownTimeout)
	r.stop()
	stopWatchdog()
	addrFile.remove()
	return err
}

// untilAsked reloads when it is asked to, and returns when the broker is to stop, or with the reason why it cannot go on. It does not wait for a
// reload then: the files may be on a disk, or a name with a server, that does not answer.
func (r *running) untilAsked(ctx context.Context, a *app, reload func()) error {
	cause := "its terminal has gone"
	hangups := a.hangups
	reloaded := make(chan struct{})
	for onTerminal := isTerminal(a.err); ; {
		select {
		case <-reloaded:
			hangups = a.hangups
			continue
		case err := <-r.failed:
			return err
		case <-ctx.Done():
			cause = context.Cause(ctx).Error()
		case <-hangups:
			if !onTerminal || isTerminal(a.err) {
				hangups = nil // one after the other
				go func() {
					reload()
					select {
					case reloaded <- struct{}{}:
					case <-ctx.Done():
					}
				}()
				continue
			}
			// Whoever closes a window does not want to leave a broker behind.
		}
		r.log.Info("stopping", "cause", cause, "shutdown_timeout", r.options.shutdownTimeout.String())
		return nil
	}
}

// announce says, to those who start brokers from scripts as well as to people, that clients can connect. It returns the
// address file, if there is to be one.
func (r *running) announce(w io.Writer) (addrFile ownFile, err error) {
	for _, l := range r.listeners {
		announceAddress(w, r.options, addressOf(l))
	}
	if r.pages != nil {
		r.pages.announce(r.options, r.log)
		r.pages.serving.Store(true)
	}
	if r.options.addrFile != "" {
		return writeAddrFile(r.options.addrFile, r.listeners, r.pages)
	}
	return ownFile{}, nil
}

// stop drains the broker, and returns when nothing of it runs any more.
func (r *running) stop() {
	r.drain()
	r.stopPages()
	r.loops.Wait()
}

// drain says how the drain went, in numbers if something was left.
func (r *running) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), r.options.shutdownTimeout)
	defer cancel()
	started := time.Now()
	err := r.server.Shutdown(ctx)
	after := roughDuration(time.Since(started))
	if cut, ok := errors.AsType[*rpc.CutOffError](err); ok && (cut.Subscriptions > 0 || cut.InFlight > 0 || cut.Queued > 0) {
		r.log.Warn("stopped before everything was delivered", "after", after,
			"subscriptions", cut.Subscriptions, "queued", cut.Queued, "in_flight", cut.InFlight)
		return
	}
	// Groups outlive their members, but not the broker.
	groups, messages := 0, 0
	for _, g := range r.broker.Groups() {
		if n := g.Pending + g.InFlight; n > 0 {
			groups, messages = groups+1, messages+n
		}
	}
	if groups > 0 {
		r.log.Warn("stopped with messages in groups without a member", "after", after, "groups", groups, "messages", messages)
		return
	}
	r.log.Info("stopped", "after", after)
}
