// Package bench puts load on a broker and measures what comes out: rates, latency, and whether anything was lost. It is a
// client like any other; each publisher and each subscriber has a connection of its own.
package bench

import (
	"errors"
	"fmt"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// Options say what load to put on the broker.
type Options struct {
	Publishers  int
	Subscribers int // 0: nothing is received, only publishing is measured
	// Group makes the subscribers members of one consumer group. Empty: each of them receives everything.
	Group       string
	Ack         core.AckMode // of a group
	MaxInFlight int          // of each member; 0: the broker's
	// Size is that of a payload in bytes, at least MinSize.
	Size int
	// Messages is how many to measure, of all publishers together. 0: as many as Duration allows.
	Messages int64
	// Duration is how long to publish, after the warm-up. 0: until Messages are published. One of the two is set.
	Duration time.Duration
	// Rate is how many messages a second all publishers send together. 0: as fast as they can.
	Rate float64
	// Warmup is how long to publish before anything is measured.
	Warmup time.Duration
	// Topics is how many topics each publisher takes in turn. With more than one, subscribers use a pattern for all of them.
	Topics int
	// MaxWait is how long the broker may hold publishers back for subscribers whose queues are nearly full. 0: not at all.
	MaxWait time.Duration
	// Progress is told how far it has come, a few times a second, by one goroutine. May be nil.
	Progress func(Progress)
}

// Progress tells how far a run has come.
type Progress struct {
	Warmup    bool  // still warming up
	Published int64 // messages, in this part of the run
	Delivered int64 // to all subscribers together
	Elapsed   time.Duration
	Done      float64 // 0 to 1
}

const (
	// maxPublishers is what the publisher's number in a payload has room for.
	maxPublishers = 1 << 16
	maxTopics     = 10_000_000
)

// Validate reports the first option that makes no sense.
func (o *Options) Validate() error {
	switch {
	case o.Publishers < 1 || o.Publishers >= maxPublishers:
		return fmt.Errorf("publishers: %d is not between 1 and %d", o.Publishers, maxPublishers-1)
	case o.Subscribers < 0:
		return errors.New("subscribers: is negative")
	case o.Group != "" && o.Subscribers == 0:
		return errors.New("group: has no subscribers")
	case o.Size < MinSize:
		return fmt.Errorf("size: %d is less than %d, what the sequence number and the time take", o.Size, MinSize)
	case o.Topics < 1 || o.Topics > maxTopics:
		return fmt.Errorf("topics: %d is not between 1 and %d", o.Topics, maxTopics)
	case (o.Messages > 0) == (o.Duration > 0):
		return errors.New("one of messages and duration is needed")
	case o.Messages < 0 || o.Duration < 0 || o.Rate < 0 || o.Warmup < 0 || o.MaxWait < 0 || o.MaxInFlight < 0:
		return errors.New("nothing can be negative")
	}
	if o.Group != "" {
		return core.ValidateGroupName(o.Group)
	}
	return nil
}
