package core

import (
	"fmt"
	"time"
)

// AckMode says when a message of a group is done.
type AckMode int

// The ack modes.
const (
	// AckDefault is AckExplicit.
	AckDefault AckMode = iota
	// AckExplicit: when the member acknowledges it.
	AckExplicit
	// AckNone: when it is written to the member's stream.
	AckNone
)

// String returns the mode as configurations spell it.
func (a AckMode) String() string {
	switch a {
	case AckDefault:
		return "default"
	case AckExplicit:
		return "explicit"
	case AckNone:
		return "none"
	}
	return fmt.Sprintf("AckMode(%d)", int(a))
}

// GroupSettings are what all members of a group agree on. In JoinOptions zero values and a nil AckDeadline mean whatever holds: the group's, or
// for its first member the broker's.
type GroupSettings struct {
	// Ack says when a message is done.
	Ack AckMode
	// Overflow is what happens to a message for which the group's queue has no room; by default OverflowReject with
	// AckExplicit and OverflowDropOldest with AckNone. OverflowEvict is not for groups.
	Overflow OverflowPolicy
	// Capacity bounds the messages waiting, those in flight not counted; never above the broker's GroupCapacity.
	Capacity int
	// AckDeadline is how long after it was written a delivery that is not acknowledged is taken for lost; 0: never.
	AckDeadline *time.Duration
	// MaxAttempts is how often a message is delivered before it becomes a dead letter.
	MaxAttempts int
}

// JoinOptions describe a member of a consumer group.
type JoinOptions struct {
	// Group names the group; it comes into being with its first member.
	Group string
	// ID, Patterns, Client and Peer are as in SubscribeOptions.
	ID           string
	Patterns     []string
	Client, Peer string
	// Access is on whose behalf. Only members that may receive the same share a queue.
	Access Access
	// MaxInFlight is how many deliveries may wait for this member's ack at once; 0: the broker's.
	MaxInFlight int
	// Settings are what the member asks of the group.
	Settings GroupSettings
}

const (
	maxMaxInFlight = 1 << 16
	maxMaxAttempts = 1 << 16
	maxAckDeadline = 24 * time.Hour
)

// validate checks what a member asks for by itself.
func (o *JoinOptions) validate() error {
	if err := ValidateGroupName(o.Group); err != nil {
		return err
	}
	s := &o.Settings
	switch {
	case s.Ack < AckDefault || s.Ack > AckNone:
		return fmt.Errorf("%w: unknown ack mode %d", ErrProtocol, int(s.Ack))
	case s.Overflow < OverflowDefault || s.Overflow > OverflowReject || s.Overflow == OverflowEvict:
		return fmt.Errorf("%w: overflow policy %s is not for a consumer group", ErrProtocol, s.Overflow)
	case s.Capacity < 0:
		return fmt.Errorf("%w: capacity %d is negative", ErrProtocol, s.Capacity)
	case o.MaxInFlight < 0 || o.MaxInFlight > maxMaxInFlight:
		return fmt.Errorf("%w: max_in_flight %d is not between 0 and %d", ErrProtocol, o.MaxInFlight, maxMaxInFlight)
	case s.MaxAttempts < 0 || s.MaxAttempts > maxMaxAttempts:
		return fmt.Errorf("%w: max_attempts %d is not between 0 and %d", ErrProtocol, s.MaxAttempts, maxMaxAttempts)
	case s.AckDeadline != nil && (*s.AckDeadline < 0 || *s.AckDeadline > maxAckDeadline):
		return fmt.Errorf("%w: ack_deadline %s is not between 0 and %s", ErrProtocol, *s.AckDeadline, maxAckDeadline)
	}
	return nil
}

// effective fills in the broker's settings where the member that creates the group has no wish.
func (s GroupSettings) effective(o *Options) GroupSettings {
	if s.Ack == AckDefault {
		s.Ack = AckExplicit
	}
	if s.Overflow == OverflowDefault {
		s.Overflow = OverflowReject
		if s.Ack == AckNone {
			s.Overflow = OverflowDropOldest
		}
	}
	if s.Capacity == 0 || s.Capacity > o.GroupCapacity {
		s.Capacity = o.GroupCapacity
	}
	if s.AckDeadline == nil {
		s.AckDeadline = &o.AckDeadline
	}
	if s.MaxAttempts == 0 {
		s.MaxAttempts = o.MaxAttempts
	}
	return s
}

// agree reports the first setting in which a member's wish differs from what holds in the group.
func (s GroupSettings) agree(group string, wish GroupSettings, o *Options) error {
	differs := func(setting string, want, holds any) error {
		return fmt.Errorf("%w: %s %v of group %s differs from %v, which its first member has set", ErrGroupConfig, setting, want, quoteShort(group), holds)
	}
	switch {
	case wish.Ack != AckDefault && wish.Ack != s.Ack:
		return differs("ack_mode", wish.Ack, s.Ack)
	case wish.Overflow != OverflowDefault && wish.Overflow != s.Overflow:
		return differs("overflow", wish.Overflow, s.Overflow)
	case wish.Capacity != 0 && min(wish.Capacity, o.GroupCapacity) != s.Capacity:
		return differs("capacity", wish.Capacity, s.Capacity)
	case wish.AckDeadline != nil && *wish.AckDeadline != *s.AckDeadline:
		return differs("ack_deadline", *wish.AckDeadline, *s.AckDeadline)
	case wish.MaxAttempts != 0 && wish.MaxAttempts != s.MaxAttempts:
		return differs("max_attempts", wish.MaxAttempts, s.MaxAttempts)
	}
	return nil
}
