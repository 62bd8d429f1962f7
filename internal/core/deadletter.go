package core

import (
	"maps"
	"strconv"
	"strings"
	"unicode/utf8"
)

// DeadLetterTopic returns where the dead letters of a group go.
func DeadLetterTopic(group string) string { return deadLetterPrefix + group }

const deadLetterPrefix = ownPrefix + "dlq."

// The headers that a dead letter has beside those of its message.
const (
	HeaderTopic    = "tinybroker-topic"    // where the message was published
	HeaderGroup    = "tinybroker-group"    // whose dead letter it is
	HeaderAttempts = "tinybroker-attempts" // how often it was delivered
	HeaderReason   = "tinybroker-reason"   // rejected or max_attempts, and the member's own words if there were any
)

// maxReason bounds the member's own words in a dead letter, in bytes.
const maxReason = 512

// deadLetter is what was a parcel, on its way to the dead-letter topic.
type deadLetter struct {
	extent
	attempt int
	reason  string
}

// buryLocked makes dead letters of a parcel in flight.
func (g *group) buryLocked(p *parcel, why, words string) {
	reason := why
	if words != "" {
		reason += ": " + cutText(words, maxReason)
	}
	p.frame.retain()
	g.letters = append(g.letters, deadLetter{extent: p.extent, attempt: p.attempt, reason: reason})
	g.landLocked(p)
	g.counters.dead += uint64(p.n)
	g.leaveLocked(p)
}

// letter encodes the dead letter of a record. One that was a dead letter already gets none: it would never end.
func (g *group) letter(record []byte, attempt int, reason string) []byte {
	m, err := g.encoding.Decode(record)
	if err != nil || strings.HasPrefix(m.Topic, deadLetterPrefix) {
		return nil
	}
	headers := make(map[string]string, len(m.Headers)+4)
	maps.Copy(headers, m.Headers)
	headers[HeaderTopic] = m.Topic
	headers[HeaderGroup] = g.name
	headers[HeaderAttempts] = strconv.Itoa(attempt)
	headers[HeaderReason] = reason
	m.Topic, m.Headers = DeadLetterTopic(g.name), headers
	return g.encoding.Append(nil, &m)
}

// unlock unlocks the group, having ended members that it drains, and publishes the dead letters that have come up meanwhile. A reader that is behind
// with nothing but the group's letters gets a moment to take some, as it would if they were one batch; that holds up whoever has caused them.
func (g *group) unlock() {
	if g.draining {
		g.finishDrainedLocked()
	}
	letters := g.letters
	g.letters = nil
	if len(letters) > 0 {
		g.posting++
		g.mu.Unlock()
		p := &publication{id: g.burst, grace: frameGrace}
		for i := range letters {
			g.post(p, &letters[i])
		}
		g.mu.Lock()
		g.posting--
	}
	g.countRestlessLocked()
	drains := g.draining
	g.mu.Unlock()
	if drains {
		g.broker.drainWatchers()
	}
}

// post publishes dead letters as a part of p. It makes one after the other: together they may be as large as all that is in flight.
func (g *group) post(p *publication, l *deadLetter) {
	defer l.frame.release()
	for data := l.data(); len(data) > 0; {
		n := g.encoding.Len(data)
		g.broker.counters.deadLetters.Add(1)
		g.send(p, data[:n], l)
		// A group that takes events and handles none would else get one for each that dies, for ever.
		if topic := string(g.encoding.Topic(data[:n])); !strings.HasPrefix(topic, ownPrefix) {
			g.broker.emitAs(p, "deadletter", deadLetterEvent{Group: g.name, Topic: topic, Attempts: l.attempt, Reason: l.reason})
		}
		data = data[n:]
	}
}

// send publishes the dead letter of a record, if anybody is to have it.
func (g *group) send(p *publication, dead []byte, l *deadLetter) {
	b, topic := g.broker, DeadLetterTopic(g.name)
	if !b.router.heard([]byte(topic)) {
		return
	}
	record := g.letter(dead, l.attempt, l.reason)
	size := ownSize(record)
	switch {
	case record == nil:
	case b.acquireOwn(size), b.compact() && b.acquireOwn(size), b.reclaim(size, b.ownLimit()):
		b.publishOwn(p, topic, record)
	default:
		b.dropOwn(DropMemory)
	}
}

// cutText shortens s to at most n bytes, and to whole characters.
func cutText(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
