package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// logEnding writes the one line of a subscription, at its end.
func (s *Server) logEnding(sub consumer, identity string) {
	ending := sub.Ending()
	level, limit := slog.LevelInfo, &s.lines.endings
	if ending.Reason == core.EndEvicted || ending.Reason == core.EndStalled {
		level, limit = slog.LevelWarn, &s.lines.evictions
	}
	if !limit.allow(s.log) {
		return
	}
	slots, _ := sub.Capacity()
	group := ""
	if m, ok := sub.(*core.Member); ok {
		group = m.Group()
	}
	s.log.Log(context.Background(), level, "subscription ended", "reason", ending.Reason.String(), "why", ending.Text,
		"subscription", sub.ID(), "client", sub.Client(), "peer", sub.Peer(), "identity", identity, "group", group, "patterns", shownPatterns(sub.Patterns()),
		"capacity", slots, "queued", ending.Queued, "queued_bytes", ending.QueuedBytes, "lost", ending.Lost,
		"lived", ending.Lived.Round(time.Millisecond).String())
}

// shownPatterns keeps a log line readable.
func shownPatterns(patterns []string) []string {
	const most = 16
	if len(patterns) > most {
		patterns = append(patterns[:most:most], ellipsis)
	}
	for i, p := range patterns {
		patterns[i] = boundText(p)
	}
	return patterns
}

// logConnection writes the one line of a connection, at its end. One that has neither published nor subscribed is a probe, or somebody who
// watches: there may be one every second, and they are for those who want to see everything.
func (s *Server) logConnection(c *serverConn, client string) {
	level := slog.LevelDebug
	if c.used.Load() {
		level = slog.LevelInfo
	}
	if !s.log.Enabled(context.Background(), level) || level == slog.LevelInfo && !s.lines.connections.allow(s.log) {
		return
	}
	s.log.Log(context.Background(), level, "connection closed", "peer", c.Conn.RemoteAddr().String(), "client", client,
		"received_bytes", c.received.Load(), "sent_bytes", c.sent.Load(),
		"lived", time.Since(c.accepted).Round(time.Millisecond).String())
}

// logExpired writes the one line of messages that went since no member came back for them in time.
func (s *Server) logExpired(e core.Expired) {
	if e.Dropped == 0 || !s.lines.expiries.allow(s.log) {
		return
	}
	s.log.Warn("messages dropped: no member came back for them", "group", e.Group, "patterns", shownPatterns(append([]string{}, e.Patterns...)), "messages", e.Dropped)
}

// logHandshake tells the operator whose connection came to nothing since one of its ends did not like what the other has shown. Who just goes, or
// says nothing, has looked whether a port is open.
func (s *Server) logHandshake(conn net.Conn, err error) {
	gone := []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, os.ErrDeadlineExceeded}
	if slices.ContainsFunc(gone, func(e error) bool { return errors.Is(err, e) }) {
		return
	}
	why := err.Error()
	if strings.Contains(why, noALPN) {
		why = "tls: the client offers no HTTP/2 (ALPN h2)"
	}
	if s.lines.handshakes.allow(s.log) {
		s.log.Warn("handshake refused", "peer", conn.RemoteAddr().String(), "why", boundText(why))
	}
}

// noALPN is what gRPC says of a TLS handshake in which nothing was agreed on, at either end, before it wonders about its own versions.
const noALPN = "missing selected ALPN property"
