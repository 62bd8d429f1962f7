//go:build unix

package main

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// soakSender is what one publisher of the soak has sent: the numbers 1, 2, 3… and what became of them. A number whose
// fate is not known is sent again, so none is left out.
type soakSender struct {
	name  string
	topic func(n int) string

	mu          sync.Mutex
	begun       int // all up to here were given to the publisher
	confirmed   int // all up to here were accepted or refused
	base        int // all up to here were judged in an earlier round
	refused     map[int]bool
	doubt       []soakSpan // sent, or possibly sent, more than once
	poison      map[int]bool
	begunAt     map[int]time.Time
	confirmedAt map[int]time.Time
	gone        bool // killed: what is unconfirmed may have been sent or not
}

type soakSpan struct{ first, last int }

func newSoakSender(name string, topic func(n int) string) *soakSender {
	return &soakSender{name: name, topic: topic, refused: map[int]bool{}, poison: map[int]bool{}, begunAt: map[int]time.Time{}, confirmedAt: map[int]time.Time{}}
}

// next is the number to send next.
func (s *soakSender) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	s.begunAt[s.begun] = time.Now()
	return s.begun
}

// confirm takes note that all up to n are dealt with.
func (s *soakSender) confirm(n int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.confirmed < n {
		s.confirmed++
		s.confirmedAt[s.confirmed] = at
	}
}

func (s *soakSender) refuse(first, last int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := first; n <= last; n++ {
		s.refused[n] = true
	}
}

// doubtFrom takes note that everything that is unconfirmed now may be sent again.
func (s *soakSender) doubtUnconfirmed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun > s.confirmed {
		s.doubt = append(s.doubt, soakSpan{s.confirmed + 1, s.begun})
	}
}

func (s *soakSender) counts() (begun, confirmed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun, s.confirmed
}

// settled reports whether nothing is unconfirmed.
func (s *soakSender) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone || s.begun == s.confirmed
}

// closeRound forgets what has been judged.
func (s *soakSender) closeRound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = s.confirmed
	s.doubt = nil
	clear(s.refused)
	clear(s.poison)
	clear(s.begunAt)
	clear(s.confirmedAt)
}

// soakFate is a copy of a sender's notes, to judge by.
type soakFate struct {
	name        string
	topic       func(n int) string
	base        int
	begun       int
	confirmed   int
	refused     map[int]bool
	poison      map[int]bool
	doubt       []soakSpan
	begunAt     map[int]time.Time
	confirmedAt map[int]time.Time
	gone        bool
}

func (s *soakSender) fate() *soakFate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &soakFate{
		s.name, s.topic, s.base, s.begun, s.confirmed, maps.Clone(s.refused), maps.Clone(s.poison), slices.Clone(s.doubt),
		maps.Clone(s.begunAt), maps.Clone(s.confirmedAt), s.gone,
	}
}

// doubtful reports whether n may have been sent twice.
func (f *soakFate) doubtful(n int) bool {
	for _, d := range f.doubt {
		if d.first <= n && n <= d.last {
			return true
		}
	}
	return false
}

// soakText is the payload of number n. Everything that is told by it is covered by its checksum.
func soakText(sender string, n int, topic, key string, size int) string {
	head := fmt.Sprintf("%s %d %08x ", sender, n, soakSum(sender, n, topic, key, size))
	return head + strings.Repeat(".", max(0, size-len(head)))
}

func soakSum(sender string, n int, topic, key string, size int) uint32 {
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%s\x00%d\x00%s\x00%s\x00%d", sender, n, topic, key, size))
}

// readSoakText takes a payload apart, and reports whether it came as it was sent.
func readSoakText(topic, key, payload string) (sender string, n int, err error) {
	fields := strings.SplitN(payload, " ", 4)
	if len(fields) != 4 {
		return "", 0, fmt.Errorf("damaged payload %.60q", payload)
	}
	sender = fields[0]
	n, err = strconv.Atoi(fields[1])
	if err != nil {
		return "", 0, fmt.Errorf("damaged payload %.60q", payload)
	}
	sum := fmt.Sprintf("%08x", soakSum(sender, n, topic, key, len(payload)))
	if fields[2] != sum || strings.Trim(fields[3], ".") != "" {
		return "", 0, fmt.Errorf("damaged: topic %.60q key %.60q payload %.60q of %d bytes", topic, key, payload, len(payload))
	}
	return sender, n, nil
}
