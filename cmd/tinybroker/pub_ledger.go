package main

import (
	"fmt"
	"strings"
	"sync"
)

// sent is one message between being handed to the publisher and being confirmed.
type sent struct {
	in     *input
	number uint64 // of its record
	size   int64  // as the broker counts it
	bytes  int64  // of its payload
	raw    []byte // what --tee will write; nil without it
}

func (s sent) where() string { return s.in.where(s.number) }

// ledger knows which messages are unconfirmed, and counts the others. It is safe for concurrent use.
type ledger struct {
	mu        sync.Mutex
	open      []sent // in the order of their positions
	confirmed uint64
	refused   uint64
	unrouted  uint64
	bytes     int64 // payload bytes confirmed
}

func (l *ledger) add(s sent) {
	l.mu.Lock()
	l.open = append(l.open, s)
	l.mu.Unlock()
}

// takeBack undoes the last add, for a message that the publisher did not take.
func (l *ledger) takeBack() {
	l.mu.Lock()
	l.open = l.open[:len(l.open)-1]
	l.mu.Unlock()
}

// settle takes the oldest n messages out; accepted says what became of them.
func (l *ledger) settle(n, unrouted uint64, accepted bool) []sent {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, uint64(len(l.open)))
	done := l.open[:n:n]
	l.open = l.open[n:]
	if accepted {
		l.confirmed += n
		l.unrouted += unrouted
		for _, s := range done {
			l.bytes += s.bytes
		}
	} else {
		l.refused += n
	}
	return done
}

func (l *ledger) counts() (confirmed, refused, unrouted, open uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed, l.refused, l.unrouted, uint64(len(l.open))
}

func (l *ledger) confirmedBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// unconfirmed names the messages that are still open: "lines 501-517".
func (l *ledger) unconfirmed() string {
	const most = 5
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for i := 0; i < len(l.open); {
		first, last := l.open[i], l.open[i]
		for i++; i < len(l.open) && l.open[i].in == first.in && l.open[i].number == last.number+1; i++ {
			last = l.open[i]
		}
		if len(parts) == most {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, rangeText(first, last))
	}
	return strings.Join(parts, ", ")
}

func rangeText(first, last sent) string {
	if first.number == last.number {
		return first.where()
	}
	text := fmt.Sprintf("%ss %d-%d", first.in.unit, first.number, last.number)
	if first.in.name != "" {
		text = first.in.name + ": " + text
	}
	return text
}
