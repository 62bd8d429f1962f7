package core

import (
	"fmt"
	"time"
)

// Options are the limits of a broker. The zero value of a field is not a default: start from DefaultOptions.
type Options struct {
	// ConsumerCapacity is the most messages one broadcast subscription's queue holds: its slots.
	ConsumerCapacity int
	// ConsumerCapacityBytes bounds the same queue in bytes. A queue that is empty takes any one message.
	ConsumerCapacityBytes int64
	// GroupCapacity and GroupCapacityBytes bound what waits in a consumer group; what is in flight is not counted.
	GroupCapacity      int
	GroupCapacityBytes int64
	// GroupLinger is how long a group goes on queueing without a member before it goes with all it holds.
	GroupLinger time.Duration
	// AckDeadline, MaxAttempts and MaxInFlight hold for groups and members that ask for nothing else. An AckDeadline of 0
	// is none.
	AckDeadline time.Duration
	MaxAttempts int
	MaxInFlight int
	// MaxMessageSize bounds topic, key, headers and payload of one message together, in bytes.
	MaxMessageSize int
	// MaxMemory bounds the message bytes the broker holds, shared bytes counted once, with what groups and long queues keep beside them.
	MaxMemory int64
	// MaxSubscriptions bounds how many subscriptions may live at once.
	MaxSubscriptions int
	// SendTimeout is how long the stream of a group member may take nothing before it is evicted as stalled, and how long
	// an evicted stream gets to take its last frame.
	SendTimeout time.Duration
	// Encoding reads and writes records. Required.
	Encoding Encoding
	// Clock is where time comes from. Nil: the system's.
	Clock Clock
}

// DefaultOptions are the documented defaults. Encoding is left to the caller.
func DefaultOptions() Options {
	return Options{
		ConsumerCapacity:      65536,
		ConsumerCapacityBytes: 32 << 20,
		GroupCapacity:         10_000,
		GroupCapacityBytes:    64 << 20,
		GroupLinger:           time.Minute,
		AckDeadline:           30 * time.Second,
		MaxAttempts:           5,
		MaxInFlight:           64,
		MaxMessageSize:        1 << 20,
		MaxMemory:             512 << 20,
		MaxSubscriptions:      100_000,
		SendTimeout:           10 * time.Second,
	}
}

// Range is what a setting may be, both ends included; that of a duration is in nanoseconds.
type Range struct{ Min, Max int64 }

// optionRanges are the settings of Options in the order of its fields, by configuration name.
var optionRanges = []struct {
	name  string
	value func(*Options) int64
	Range
}{
	{"consumer_capacity", func(o *Options) int64 { return int64(o.ConsumerCapacity) }, Range{1, 1 << 22}},
	{"consumer_capacity_bytes", func(o *Options) int64 { return o.ConsumerCapacityBytes }, Range{1 << 10, 1 << 34}},
	{"group_capacity", func(o *Options) int64 { return int64(o.GroupCapacity) }, Range{1, 1 << 22}},
	{"group_capacity_bytes", func(o *Options) int64 { return o.GroupCapacityBytes }, Range{1 << 10, 1 << 34}},
	{"group_linger", func(o *Options) int64 { return int64(o.GroupLinger) }, Range{0, int64(24 * time.Hour)}},
	{"ack_deadline", func(o *Options) int64 { return int64(o.AckDeadline) }, Range{0, int64(maxAckDeadline)}},
	{"max_attempts", func(o *Options) int64 { return int64(o.MaxAttempts) }, Range{1, maxMaxAttempts}},
	{"max_in_flight", func(o *Options) int64 { return int64(o.MaxInFlight) }, Range{1, maxMaxInFlight}},
	{"max_message_size", func(o *Options) int64 { return int64(o.MaxMessageSize) }, Range{1, 1 << 30}},
	{"max_memory", func(o *Options) int64 { return o.MaxMemory }, Range{1 << 20, 1 << 44}},
	{"max_subscriptions", func(o *Options) int64 { return int64(o.MaxSubscriptions) }, Range{1, 1 << 24}},
	{"send_timeout", func(o *Options) int64 { return int64(o.SendTimeout) }, Range{int64(time.Millisecond), int64(24 * time.Hour)}},
}

// OptionRange returns the range of a setting of Options by its configuration name. It panics at a name that is none.
func OptionRange(name string) Range {
	for _, r := range optionRanges {
		if r.name == name {
			return r.Range
		}
	}
	panic("core: no setting " + name)
}

// Validate reports the first setting that is out of range, by its configuration name.
func (o Options) Validate() error {
	for _, r := range optionRanges {
		if v := r.value(&o); v < r.Min || v > r.Max {
			return fmt.Errorf("%s: %d is not between %d and %d", r.name, v, r.Min, r.Max)
		}
	}
	return nil
}

// Clock is the broker's only source of time.
type Clock interface {
	// Now returns the present; only differences matter.
	Now() time.Time
	// AfterFunc calls f in its own goroutine once d has passed, unless the returned stop function is called before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the machine's clock. Inside a testing/synctest bubble it is the bubble's.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (SystemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
