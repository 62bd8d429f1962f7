package rpc

import (
	"log/slog"
	"sync"
	"time"
)

// maxEvictionLines is how many evictions are logged a second. Thousands at once have one cause, and the counters stay exact.
const maxEvictionLines = 20

// lineLimit keeps a flood of evictions from becoming a flood of log lines. The zero value is ready for use. Safe for
// concurrent use.
type lineLimit struct {
	mu         sync.Mutex
	logged     int // in this second
	suppressed int
	running    bool // the second is being timed
}

// allow reports whether one more line may be logged. Those that may not are counted on log, once the second is over.
func (l *lineLimit) allow(log *slog.Logger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		l.running = true
		time.AfterFunc(time.Second, func() { l.next(log) })
	}
	if l.logged < maxEvictionLines {
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
		log.Warn("more subscriptions were evicted than are logged", "suppressed", suppressed)
	}
}
