package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// limitTold finds the limit in the refusal of a message that is too large: the broker's own words, or those of the
// transport, which has a limit of its own for what is larger still. There is nowhere else to learn it from.
var limitTold = regexp.MustCompile(`over the limit of (\d+) bytes|the most is (\d+)`)

// overLimitError is a message over the broker's limit, in a person's units.
type overLimitError struct{ size, limit int64 }

func (e *overLimitError) Error() string {
	return fmt.Sprintf("%s is over the broker's %s limit", roughSize(e.size), spacedSize(e.limit))
}

func (e *overLimitError) Unwrap() error { return core.ErrMessageTooLarge }

// plainTooLarge says a refusal for size plainly and remembers the limit; other errors stay as they are.
func (s *pubSession) plainTooLarge(err error, size int64) error {
	m := limitTold.FindStringSubmatch(err.Error())
	if !errors.Is(err, core.ErrMessageTooLarge) || m == nil {
		return err
	}
	limit, _ := strconv.ParseInt(m[1]+m[2], 10, 64) // one of them is empty
	if known := s.limit.Load(); known > 0 {
		limit = min(limit, known)
	}
	s.limit.Store(limit)
	return &overLimitError{size, limit}
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
