package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// limitTold finds the limit in the broker's refusal of a message that is too large. There is nowhere else to learn it from.
var limitTold = regexp.MustCompile(`limit of (\d+) bytes$`)

// overLimitError is a message over the broker's limit, in a person's units. The limit is 0 where it is not known: what is larger
// still is refused by gRPC, before the broker can say a word.
type overLimitError struct{ size, limit int64 }

func (e *overLimitError) Error() string {
	if e.limit == 0 {
		return roughSize(e.size) + " is over the broker's limit"
	}
	size, limit := sizeAndLimit(e.size, e.limit)
	return fmt.Sprintf("%s is over the broker's %s limit", size, limit)
}

func (e *overLimitError) Unwrap() error { return core.ErrMessageTooLarge }

// plainTooLarge says a refusal for size plainly and remembers the limit; other errors stay as they are.
func (s *pubSession) plainTooLarge(err error, size int64) error {
	if !errors.Is(err, core.ErrMessageTooLarge) {
		return err
	}
	if m := limitTold.FindStringSubmatch(err.Error()); m != nil {
		limit, _ := strconv.ParseInt(m[1], 10, 64) // digits; should there be too many, it is the largest number
		s.limit.Store(limit)
	}
	return &overLimitError{size, s.limit.Load()}
}

// tooLarge refuses what the broker is known to refuse, without sending it.
func (s *pubSession) tooLarge(size int64) error {
	if limit := s.limit.Load(); limit > 0 && size > limit {
		return &overLimitError{size, limit}
	}
	return nil
}

// messageSize is a message's size as the broker counts it.
func messageSize(m *core.Message) int64 {
	size := len(m.Topic) + len(m.Key) + len(m.Payload)
	for name, value := range m.Headers {
		size += len(name) + len(value)
	}
	return int64(size)
}
