//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The judges of the soak. They know nothing of how the broker works: they compare what came with what was sent, number by
// number. TestSoakJudges shows that each of them can find what it is there to find.

// soakEpoch is what came on one stream of a broadcast subscription, from `opened` to its end.
type soakEpoch struct {
	who   string
	drops bool // the overflow policy drops, and says how many

	opened  map[string]int   // by sender: how many were begun with when it was opened; nil: not known
	got     map[string][]int // by sender: the numbers, in the order in which they came
	dropped uint64           // as told
	open    bool             // it is open at the end of the round, everybody being at rest
	quiet   bool             // it began when nothing was under way, so that opened is exact
}

func newSoakEpoch(who string, drops bool) *soakEpoch {
	return &soakEpoch{who: who, drops: drops, got: map[string][]int{}}
}

// judge returns what is wrong: order, doubles, holes.
func (e *soakEpoch) judge(fates map[string]*soakFate) (faults []string) {
	fault := func(format string, args ...any) {
		faults = append(faults, e.who+": "+fmt.Sprintf(format, args...))
	}
	missing, doubtful := 0, 0
	perhaps := 0 // sent by who was killed, if at all
	for name, numbers := range e.got {
		if fates[name] == nil {
			fault("%s has sent nothing, but %d messages came", name, len(numbers))
		}
	}
	for name, f := range fates {
		numbers := e.got[name]
		seen := map[int]bool{}
		last := 0
		for _, n := range numbers {
			switch {
			case n < 1 || n > f.begun:
				fault("%s %d came and was never sent", name, n)
			case f.refused[n] && !f.doubtful(n):
				fault("%s %d came though it was refused", name, n)
			case f.doubtful(n):
				doubtful++
			case seen[n]:
				fault("%s %d came twice", name, n)
			case n < last:
				fault("%s %d came after %d", name, n, last)
			}
			seen[n] = true
			if !f.doubtful(n) {
				last = max(last, n)
			}
		}
		first, until := e.bounds(f, numbers)
		if f.gone {
			perhaps += f.begun - max(until, f.confirmed)
		}
		for n := first; n <= until; n++ {
			if f.doubtful(n) && !seen[n] {
				doubtful++ // sent twice, it may have been dropped twice
			}
			if seen[n] || f.refused[n] {
				continue
			}
			missing++
			if !e.drops {
				fault("%s %d is missing, between %d and %d", name, n, first, until)
				break
			}
		}
	}
	switch {
	case !e.drops && e.dropped > 0:
		fault("%d messages are said to be dropped, with a policy that drops none", e.dropped)
	case e.drops && uint64(missing) > e.dropped:
		fault("%d messages are missing, %d are said to be dropped", missing, e.dropped)
	case e.drops && e.open && e.quiet && doubtful == 0 && uint64(missing+perhaps) < e.dropped:
		fault("%d messages are said to be dropped, %d are missing", e.dropped, missing)
	}
	return faults
}

// bounds are the first and the last number that must have come.
func (e *soakEpoch) bounds(f *soakFate, numbers []int) (first, last int) {
	if len(numbers) > 0 {
		first, last = slices.Min(numbers), slices.Max(numbers)
	}
	if opened, known := e.opened[f.name]; known {
		// Also one that was begun with later than this subscription was opened.
		if first = opened + 1; last < first {
			last = opened
		}
	} else if e.opened != nil {
		first = 1
	}
	if e.open && (e.opened != nil || len(numbers) > 0) {
		last = max(last, f.confirmed)
	}
	return max(first, 1), last
}

// soakStream is the time of a member of a group between joining and being gone.
type soakStream struct {
	name string
	// unclean: it ended without leaving, or was kept from acknowledging for a while.
	unclean bool
}

// soakHandling is one message that a member has handled and was about to acknowledge.
type soakHandling struct {
	sender  string
	n       int
	key     string
	attempt int
	stream  *soakStream
}

// soakStop is an end of the broker.
type soakStop struct {
	at    time.Time
	clean bool      // nothing was left to deliver
	ended time.Time // when it was started again
	// back is when a group had a member again. Until then it does not exist, and what is published has no receiver.
	back map[string]time.Time
}

// soakLossWindow is how long before its violent end the broker may have accepted what a group has lost by it.
const soakLossWindow = 8 * time.Second

// soakGroup is what the members of a group have handled in a round, in the order in which it happened.
type soakGroup struct {
	name    string
	takes   func(topic string) bool
	rejects bool // poison is rejected, and must not be handled
	none    bool // AckNone: nothing comes again, and what is on its way to a member that goes is lost
	handled []soakHandling
	doubles int // allowed ones
	lost    int // by an end of the broker
}

// judge returns what is wrong: losses, doubles, order by key.
func (g *soakGroup) judge(fates map[string]*soakFate, stops []soakStop) (faults []string) {
	fault := func(format string, args ...any) {
		faults = append(faults, "group "+g.name+": "+fmt.Sprintf(format, args...))
	}
	type message struct {
		sender string
		n      int
	}
	by := map[message][]soakHandling{}
	unclean := false
	for _, h := range g.handled {
		m := message{h.sender, h.n}
		f := fates[h.sender]
		switch {
		case f == nil:
			fault("%s has sent nothing, but %d was handled", h.sender, h.n)
			continue
		case h.n < 1 || h.n > f.begun:
			fault("%s %d was handled and never sent", h.sender, h.n)
		case !g.takes(f.topic(h.n)):
			fault("%s %d on %s was handled and is not for this group", h.sender, h.n, f.topic(h.n))
		case f.refused[h.n] && !f.doubtful(h.n):
			fault("%s %d was handled though it was refused", h.sender, h.n)
		case g.rejects && f.poison[h.n]:
			fault("%s %d was rejected and handled", h.sender, h.n)
		}
		by[m] = append(by[m], h)
		unclean = unclean || h.stream.unclean
	}
	for m, all := range by {
		if text := g.judgeDoubles(all, fates[m.sender].doubtful(m.n)); text != "" {
			fault("%s %d %s", m.sender, m.n, text)
		}
	}
	for name, f := range fates {
		for n := f.base + 1; n <= f.confirmed; n++ {
			if f.refused[n] || g.rejects && f.poison[n] || !g.takes(f.topic(n)) || len(by[message{name, n}]) > 0 {
				continue
			}
			if excusedBy(stops, g.name, f.begunAt[n], f.confirmedAt[n]) || g.none && unclean {
				g.lost++
				continue
			}
			fault("%s %d was accepted and handled by nobody", name, n)
		}
	}
	if g.none {
		return faults // done when written: a message does not wait for the one before it
	}
	return append(faults, g.judgeKeys(fates)...)
}

// judgeDoubles says what is wrong with all handlings of one message: no more than one may be by a member that was able to acknowledge it.
func (g *soakGroup) judgeDoubles(all []soakHandling, doubtful bool) string {
	clean, told := 0, ""
	for _, h := range all {
		if !h.stream.unclean || g.none {
			clean++
			told += fmt.Sprintf(", by %s as attempt %d", h.stream.name, h.attempt)
		}
	}
	if clean > 1 && !doubtful {
		return "was handled again and again: " + told[2:]
	}
	g.doubles += len(all) - 1
	return ""
}

// judgeKeys checks that messages of one key were handled in their order.
func (g *soakGroup) judgeKeys(fates map[string]*soakFate) (faults []string) {
	last := map[string]int{}
	seen := map[string]bool{}
	for _, h := range g.handled {
		f := fates[h.sender]
		if f == nil || h.key == "" || h.stream.unclean || f.doubtful(h.n) {
			continue
		}
		id := fmt.Sprint(h.sender, " ", h.n)
		if seen[id] {
			continue
		}
		seen[id] = true
		key := h.sender + " " + h.key
		if h.n < last[key] {
			faults = append(faults, fmt.Sprintf("group %s: %s %d with key %s was handled after %d:%s", g.name, h.sender, h.n, h.key, last[key], g.history(h.sender, h.key, h.n)))
		}
		last[key] = max(last[key], h.n)
	}
	return faults
}

// history tells how the messages of a key around number n were handled, as number@member/attempt, and ! where that member could not be heard.
func (g *soakGroup) history(sender, key string, n int) string {
	var all []string
	at := 0
	for _, h := range g.handled {
		if h.sender != sender || h.key != key {
			continue
		}
		if h.n == n {
			at = len(all)
		}
		text := fmt.Sprintf(" %d@%s/%d", h.n, h.stream.name, h.attempt)
		if h.stream.unclean {
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all[max(0, at-12):min(len(all), at+6)], "")
}

// excusedBy reports whether a group need not have what the broker accepted at some time between begun, when it was given to the publisher, and at,
// when that was told: over a slow connection it is told late.
func excusedBy(stops []soakStop, group string, begun, at time.Time) bool {
	for _, s := range stops {
		if !s.clean && at.After(s.at.Add(-soakLossWindow)) && at.Before(s.ended) || at.After(s.ended) && begun.Before(s.back[group]) {
			return true
		}
	}
	return false
}

// soakMark is a message on a topic that several publishers share.
type soakMark struct {
	sender string
	n      int
}

// judgeSharedOrder compares the order in which two subscriptions saw a topic.
func judgeSharedOrder(who string, reference, other []soakMark, fates map[string]*soakFate) (faults []string) {
	place := map[soakMark]int{}
	for i, m := range reference {
		place[m] = i
	}
	last, lastMark := -1, soakMark{}
	for _, m := range other {
		f := fates[m.sender]
		i, known := place[m]
		if !known || f == nil || f.doubtful(m.n) {
			continue
		}
		if i < last {
			return []string{fmt.Sprintf("%s: %s %d came after %s %d, which others saw the other way round", who, m.sender, m.n, lastMark.sender, lastMark.n)}
		}
		last, lastMark = i, m
	}
	return nil
}
