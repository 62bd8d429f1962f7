package rpc

import (
	"errors"
	"fmt"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// ErrStop is returned by a handler that has had enough: its delivery is handled, nothing more is handed out, and
// Subscribe returns nil once the broker knows what was handled and has everything else back.
var ErrStop = errors.New("stop")

// NackError is returned by the handler of a group's member to give its delivery back. The subscription goes on. A handler that
// returns it joined with ErrStop gives the delivery back and ends the subscription.
type NackError struct{ core.Nack }

// Error says what was to become of the delivery.
func (e *NackError) Error() string {
	text := "given back"
	switch e.Action {
	case core.NackRelease:
		text = "given back unstarted"
	case core.NackReject:
		text = "rejected"
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// verdict is what a handler's result means.
type verdict struct {
	nack *core.Nack // nil: the delivery is acknowledged
	stop bool       // the subscription ends
	err  error      // what Subscribe then returns
}

// judge reads the result of a handler; acks: its delivery can be given back.
func judge(err error, acks bool) verdict {
	if err == nil {
		return verdict{}
	}
	stop := errors.Is(err, ErrStop)
	if acks {
		if nack, ok := errors.AsType[*NackError](err); ok {
			return verdict{nack: &nack.Nack, stop: stop}
		}
	}
	if stop {
		return verdict{stop: true}
	}
	return verdict{nack: failed(err.Error()), stop: true, err: err}
}

// failed gives a delivery back whose handler did not do its work. It was started, so that it counts: a message that makes every
// member fail must come to an end. Where there is another member, that one may have it at once.
func failed(reason string) *core.Nack {
	now := time.Duration(0)
	return &core.Nack{Action: core.NackRetry, Delay: &now, Reason: reason}
}

// overdue is failed for a handler that did not return in time.
func overdue(limit time.Duration) *core.Nack {
	return failed(fmt.Sprintf("its handler did not return within %s", limit))
}
