package rpc

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxLines is how many lines of one kind are logged a second. Thousands at once have one cause, and the counters stay exact.
const maxLines = 20

// lineLimit keeps a flood of events of one kind from becoming a flood of log lines. Safe for concurrent use.
type lineLimit struct {
	level slog.Level
	more  string // the line that tells how many were not logged

	mu         sync.Mutex
	logged     int // in this second
	suppressed int
	running    bool // the second is being timed
}

// allow reports whether one more line may be logged. Those that may not are counted on log, once the second is over.
func (l *lineLimit) allow(log *slog.Logger) bool {
	if !log.Enabled(context.Background(), l.level) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		l.running = true
		time.AfterFunc(time.Second, func() { l.next(log) })
	}
	if l.logged < maxLines {
		l.logged++
		return true
	}
	l.suppressed++
	return false
}

func (l *lineLimit) next(log *slog.Logger) {
	l.mu.Lock()
	suppressed := l.suppressed
	l.logged, l.suppressed, l.running = 0, 0, false
	l.mu.Unlock()
	if suppressed > 0 {
		log.Log(context.Background(), l.level, l.more, "suppressed", suppressed)
	}
}

// lineLimits are those of a server.
type lineLimits struct{ evictions, endings, connections, unread, refusals, expiries, handshakes lineLimit }

func newLineLimits() *lineLimits {
	return &lineLimits{
		evictions:   lineLimit{level: slog.LevelWarn, more: "more subscriptions were evicted than are logged"},
		endings:     lineLimit{level: slog.LevelInfo, more: "more subscriptions ended than are logged"},
		connections: lineLimit{level: slog.LevelInfo, more: "more connections were closed than are logged"},
		unread:      lineLimit{level: slog.LevelWarn, more: "more connections were closed for not being read than are logged"},
		refusals:    lineLimit{level: slog.LevelWarn, more: "more calls were refused than are logged"},
		expiries:    lineLimit{level: slog.LevelWarn, more: "more messages were dropped, for which no member came back, than are logged"},
		handshakes:  lineLimit{level: slog.LevelWarn, more: "more handshakes were refused than are logged"},
	}
}
