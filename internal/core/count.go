package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// DropReason says why a message that was accepted did not reach a receiver.
type DropReason int

// The reasons. Those after DropRefused are one for each EndReason: the message was meant for a subscription that ended so.
const (
	// DropOldest: the overflow policy drop-oldest of a subscription or a group.
	DropOldest DropReason = iota
	// DropNewest: the overflow policy drop-newest.
	DropNewest
	// DropMemory: the broker's memory is full, and the subscription's policy is to drop; or the message is an event or a dead letter of the broker's own.
	DropMemory
	// DropExpired: its group, or the part of it that was to have it, has had no member for too long.
	DropExpired
	// DropRefused: an event or a dead letter of the broker's own that a full group refused.
	DropRefused

	dropEnded
	dropReasons = dropEnded + DropReason(len(endWords)) - 1
)

// dropWith is the reason for what is lost with a subscription. One that has not ended has lost its stream, and will be closed.
func dropWith(end EndReason) DropReason {
	return dropEnded + DropReason(max(end, EndClosed)) - 1
}

// String returns the reason as metrics spell it.
func (r DropReason) String() string {
	words := [...]string{"drop_oldest", "drop_newest", "memory", "group_expired", "refused"}
	switch {
	case r < 0 || r >= dropReasons:
		return fmt.Sprintf("DropReason(%d)", int(r))
	case r < dropEnded:
		return words[r]
	}
	return (EndReason(r-dropEnded) + 1).word()
}

// word is the reason as metrics spell it.
func (r EndReason) word() string { return strings.ReplaceAll(r.String(), " ", "_") }

// evictReason says why the broker ended a subscription for being slow.
type evictReason int

const (
	evictQueueFull evictReason = iota
	evictMemory
	evictStalled
	evictReasons
)

func (e *Ending) evictReason() evictReason {
	switch {
	case e.Reason == EndStalled:
		return evictStalled
	case e.memory:
		return evictMemory
	}
	return evictQueueFull
}

// String returns the reason as metrics spell it.
func (r evictReason) String() string {
	return [...]string{"queue_full", "memory", "stalled"}[r]
}

// RefuseReason says why a message was not accepted.
type RefuseReason int

// The reasons.
const (
	// RefusedInvalid: the message broke a rule.
	RefusedInvalid RefuseReason = iota
	// RefusedNotAllowed: its publisher has no right to publish there.
	RefusedNotAllowed
	// RefusedGroupFull: a group has no room, and its policy is to refuse.
	RefusedGroupFull
	// RefusedMemory: the broker holds max_memory.
	RefusedMemory
	// RefusedDraining: the broker is going away.
	RefusedDraining
	// RefusedCanceled: its publisher went away while it was held back.
	RefusedCanceled

	refuseReasons
)

// String returns the reason as metrics spell it.
func (r RefuseReason) String() string {
	words := [...]string{"invalid", "not_allowed", "group_full", "memory", "draining", "canceled"}
	if r < 0 || r >= refuseReasons {
		return fmt.Sprintf("RefuseReason(%d)", int(r))
	}
	return words[r]
}

func refuseReason(err error) RefuseReason {
	switch {
	case errors.Is(err, ErrNotAllowed):
		return RefusedNotAllowed
	case errors.Is(err, ErrGroupFull):
		return RefusedGroupFull
	case errors.Is(err, ErrMemory):
		return RefusedMemory
	case errors.Is(err, ErrDraining):
		return RefusedDraining
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return RefusedCanceled
	}
	return RefusedInvalid
}
