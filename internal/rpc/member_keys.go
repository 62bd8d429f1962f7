package rpc

import (
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// failedKeys keeps the order of messages with one key when one of them fails. The broker delivers none behind it until it comes again;
// but those that are at the member already, or on their way, have to go back. Guarded by the membership's mu; the zero value is ready.
type failedKeys struct {
	until map[string]time.Time // when the failed message of a key may come again, at the earliest
}

// leastBackoff is the shortest pause the broker makes before it delivers a failed message again, if it is not told how long.
const leastBackoff = 750 * time.Millisecond

// failed notes that a message was given back.
func (f *failedKeys) failed(key string, nack *core.Nack) {
	if key == "" || nack.Action != core.NackRetry {
		return
	}
	pause := leastBackoff
	if nack.Delay != nil {
		pause = *nack.Delay
	}
	now := time.Now()
	for k, until := range f.until {
		if !until.After(now) {
			delete(f.until, k)
		}
	}
	if f.until == nil {
		f.until = make(map[string]time.Time)
	}
	f.until[key] = now.Add(pause)
}

// waits reports whether a message of this key was sent before the broker knew that the one before it has failed.
func (f *failedKeys) waits(key string) bool {
	if len(f.until) == 0 || key == "" {
		return false
	}
	return time.Now().Before(f.until[key])
}
