package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
	"codeberg.org/tinybroker/tinybroker/internal/tui"
)

// topPrinter prints snapshots for scripts and logs.
type topPrinter struct {
	o       *topOptions
	out     io.Writer
	notices *notices
	source  *topSource
	printed int
	gap     time.Duration // how long there was no connection before the next snapshot
	lost    time.Time     // zero: the connection stands
}

// printTop is top without a screen.
func printTop(ctx context.Context, a *app, o *topOptions) error {
	_, err := leaving(ctx, writePatience, func() error { return printSnapshots(ctx, a, o) })
	return err
}

func printSnapshots(ctx context.Context, a *app, o *topOptions) error {
	n := o.notices(a.streams)
	p := &topPrinter{o: o, out: a.out, notices: n, source: &topSource{options: o.clientOptions, notices: n}}
	defer p.source.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer watchReader(a.out, func() { stop(&writeError{errReaderGone}) })()
	if err := p.source.begin(ctx); err != nil {
		return err
	}
	if o.once {
		ctx, cancel := context.WithTimeout(ctx, o.connectTimeout)
		defer cancel()
		snap, err := p.source.Observe(ctx, p.query())
		if err != nil {
			return err
		}
		return p.print(snap)
	}
	return p.follow(ctx)
}

// query asks for everything when JSON is asked for and no other view than the overview.
func (p *topPrinter) query() core.Query {
	v := p.o.view()
	if p.o.output == "json" && v == core.ViewOverview {
		v = core.ViewAll
	}
	return p.o.query(v)
}

func (p *topPrinter) print(snap *core.Snapshot) error {
	if !p.lost.IsZero() {
		p.gap = time.Since(p.lost)
		p.lost = time.Time{}
		p.notices.info("reconnected after %s", roughDuration(p.gap))
	}
	var err error
	if p.o.output == "json" {
		err = writeSnapshotJSON(p.out, snap, p.query().View, p.o.server, p.gap)
	} else {
		if p.printed > 0 {
			_, err = io.WriteString(p.out, "\n")
		}
		if err == nil {
			err = tui.WriteText(p.out, snap, p.o.view(), tui.TextOptions{Address: p.o.server, ASCII: p.o.ascii, Filter: p.o.filter})
		}
	}
	p.printed++
	p.gap = 0
	if err != nil {
		return &writeError{err}
	}
	if p.printed == 1 && p.o.view() != core.ViewOverview {
		tellCut(p.notices, snap, p.o.view())
	}
	return nil
}

// follow prints one snapshot after the other until the context ends, and goes on after a lost connection.
func (p *topPrinter) follow(ctx context.Context) error {
	attempts := 0
	for {
		err := p.source.Watch(ctx, p.query(), p.o.interval, func(snap *core.Snapshot) error {
			attempts = 0
			return p.print(snap)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !isUnreachable(err) && !errors.Is(err, core.ErrDraining) {
			return err
		}
		if p.lost.IsZero() {
			p.lost = time.Now()
			if !p.o.noReconnect {
				p.notices.info("connection lost (%s); retrying", err)
			}
		}
		if limit := p.o.reconnectTimeout; p.o.noReconnect || limit > 0 && time.Since(p.lost) > limit {
			return &rpc.UnreachableError{Target: p.o.server, Lost: true, Err: err}
		}
		attempts++
		pause := min(5*time.Second, time.Duration(attempts)*time.Second/2)
		select {
		case <-time.After(pause - rand.N(pause/4)):
		case <-ctx.Done():
		}
	}
}
