package core

import (
	"fmt"
	"time"
)

// EndReason says why a subscription ended.
type EndReason int

// The reasons.
const (
	// EndNone: it has not ended.
	EndNone EndReason = iota
	// EndClosed: its owner closed it, for example since the client is gone.
	EndClosed
	// EndEvicted: its queue was full and its policy OverflowEvict. Subscribe again to resume.
	EndEvicted
	// EndStalled: its stream took nothing for SendTimeout. Subscribe again to resume.
	EndStalled
	// EndReplaced: another subscription took its id over. Do not subscribe again.
	EndReplaced
	// EndKicked: an operator closed it.
	EndKicked
	// EndShuttingDown: the broker is going away; everything queued had been taken.
	EndShuttingDown
	// EndRevoked: the right to receive was withdrawn.
	EndRevoked
	// EndLeft: the subscriber asked for it.
	EndLeft
)

var endWords = [...]string{"none", "closed", "evicted", "stalled", "replaced", "kicked", "shutting down", "revoked", "left"}

// String returns the reason in lower-case words.
func (r EndReason) String() string {
	if r < 0 || int(r) >= len(endWords) {
		return fmt.Sprintf("EndReason(%d)", int(r))
	}
	return endWords[r]
}

// Resumable reports whether a client should subscribe again after an end for this reason.
func (r EndReason) Resumable() bool {
	return r == EndEvicted || r == EndStalled || r == EndShuttingDown
}

// Ending is the last word on a subscription.
type Ending struct {
	Reason EndReason
	// Lost is how many messages meant for the subscription were dropped at its end.
	Lost uint64
	// Dropped is how many messages the overflow policy dropped of which no delivery tells; they are not in Lost.
	Dropped uint64
	// Queued is how many of those waited in its queue, and QueuedBytes their size; for a member 0: they are its group's.
	Queued      int
	QueuedBytes int64
	// Text says why, for people.
	Text string
	// LastSequence is the delivery number of the last message that was written to the stream.
	LastSequence uint64
	// Lived is how long the subscription was there.
	Lived time.Duration

	memory bool // evicted since the broker's memory was full
}

// EndedError is the end of a subscription as an error.
type EndedError struct{ Ending }

// Error returns the reason and its text.
func (e *EndedError) Error() string {
	if e.Text == "" || e.Text == e.Reason.String() {
		return "subscription " + e.Reason.String()
	}
	return fmt.Sprintf("subscription %s: %s", e.Reason, e.Text)
}
