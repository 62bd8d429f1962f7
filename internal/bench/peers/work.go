package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/bench"
)

// receivePatience is how long all messages may take to arrive.
const receivePatience = 2 * time.Minute

// base is when this process began; times in payloads count from it.
var base = time.Now()

func now() int64 { return int64(time.Since(base)) }

// putStamp begins a payload, of 16 bytes or more, with a sequence number and the time of sending.
func putStamp(payload []byte, sequence uint64, at int64) {
	binary.LittleEndian.PutUint64(payload, sequence)
	binary.LittleEndian.PutUint64(payload[8:], uint64(at))
}

// tally counts what a subscriber receives. This is the work that both sides do for each message.
type tally struct {
	size int
	want uint64
	sum  uint64 // of the sequence numbers
	got  uint64
	bad  uint64 // of a wrong topic or size
	done chan struct{}

	// With timed, how long each message was on its way.
	timed   bool
	latency []int64
}

func newTally(size int, want uint64) *tally {
	return &tally{size: size, want: want, done: make(chan struct{})}
}

// note counts one message. It is called by one goroutine.
func (t *tally) note(topic string, payload []byte) {
	if len(payload) != t.size || len(topic) < len(topicRoot) || topic[:len(topicRoot)] != topicRoot {
		t.bad++
		return
	}
	t.sum += binary.LittleEndian.Uint64(payload)
	if t.timed {
		t.latency = append(t.latency, now()-int64(binary.LittleEndian.Uint64(payload[8:])))
	}
	if t.got++; t.got == t.want {
		close(t.done)
	}
}

// check reports what is missing or came twice, given that each of so many publishers has sent the sequence numbers below n.
func (t *tally) check(publishers, n uint64) error {
	if want := publishers * (n * (n - 1) / 2); t.got != t.want || t.sum != want || t.bad > 0 {
		return fmt.Errorf("%d of %d messages, %d of them wrong, checksum %d instead of %d", t.got, t.want, t.bad, t.sum, want)
	}
	return nil
}

// shares are the tallies of the members of a group: together they receive everything once.
type shares struct {
	members []*tally
	got     atomic.Uint64
	want    uint64
	done    chan struct{}
}

func newShares(members, size int, want uint64) *shares {
	s := &shares{want: want, done: make(chan struct{})}
	for range members {
		s.members = append(s.members, newTally(size, ^uint64(0)))
	}
	return s
}

// note counts a message of a member.
func (s *shares) note(member int, topic string, payload []byte) {
	s.members[member].note(topic, payload)
	if s.got.Add(1) == s.want {
		close(s.done)
	}
}

func (s *shares) check(n uint64) error {
	all := &tally{want: s.want}
	for _, m := range s.members {
		all.got, all.sum, all.bad = all.got+m.got, all.sum+m.sum, all.bad+m.bad
	}
	return all.check(1, n)
}

func await(ctx context.Context, done <-chan struct{}) error {
	timeout := time.NewTimer(receivePatience)
	defer timeout.Stop()
	select {
	case <-done:
		return nil
	case <-timeout.C:
		return errors.New("messages are missing")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// quantiles returns the given quantiles of values in microseconds. It sorts values.
func quantiles(values []int64, qs ...float64) []float64 {
	slices.Sort(values)
	out := make([]float64, len(qs))
	for i, q := range qs {
		out[i] = float64(values[min(len(values)-1, int(q*float64(len(values))))]) / 1e3
	}
	return out
}

// pace calls send n times, at a rate a second, with the time at which each was to happen.
func pace(ctx context.Context, n int, rate float64, send func(i int, at int64) error) error {
	start := now()
	pacer := bench.NewPacer(ctx)
	defer pacer.Close()
	for i := range n {
		at := start + int64(float64(i)*float64(time.Second)/rate)
		if err := pacer.Rest(time.Duration(at - now())); err != nil {
			return err
		}
		if err := send(i, at); err != nil {
			return err
		}
	}
	return nil
}
