package tui

import (
	"fmt"
	"strings"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// field is one thing that a record says.
type field struct {
	label, value string
	tone         tone
	picture      bool // is not wrapped
	more         bool // left out where room is short
}

// fields are all that is known about a row.
func (f *frame) fields(row any) []field {
	switch row := row.(type) {
	case *core.TopicStats:
		return f.topicFields(row)
	case *core.SubscriptionStats:
		return f.subscriptionFields(row)
	case *core.GroupStats:
		return f.groupFields(row)
	case *core.MemberStats:
		return f.memberFields(row)
	case *core.EvictionStats:
		return f.evictionFields(row)
	}
	return nil
}

func (f *frame) topicFields(t *core.TopicStats) []field {
	return []field{
		{label: "topic", value: f.name(t.Topic), more: true},
		{label: "in", value: total(t.InMsgs, t.In)},
		{label: "in bytes", value: size(float64(t.InBytes), f.raw) + ", " + size(t.InBytesPS.Second, f.raw) + "/s"},
		{label: "out", value: total(t.OutMsgs, t.Out)},
		{label: "receivers", value: plural(t.Subscriptions, "subscription") + ", " + plural(t.Groups, "group")},
		{label: "last message", value: f.ago(t.LastPublished)},
		{label: "last 60 s", value: f.sparkline(t.History, min(len(t.History), history60, f.width)), tone: toneGood, picture: true},
	}
}

func (f *frame) subscriptionFields(s *core.SubscriptionStats) []field {
	fields := []field{
		{label: "subscription", value: f.name(s.ID)},
		{label: "client", value: f.name(s.Client)},
		{label: "peer", value: f.name(s.Peer)},
		{label: "opened", value: f.ago(s.Created)},
		{label: "state", value: clean(s.State, true) + meaning(s), tone: state(s.State).tone},
	}
	if s.Group != "" {
		fields = append(fields, field{label: "group", value: f.name(s.Group)}, field{label: "in flight", value: count(s.InFlight)})
	}
	full := fraction(s.Queued, s.Capacity)
	return append(fields,
		field{label: "queue", value: fmt.Sprintf("%s of %s messages, %s", exact(s.Queued), exact(s.Capacity), size(float64(s.QueuedBytes), f.raw))},
		field{label: "full", value: percent(full) + " " + f.gauge(full, 20), tone: fullness(s.Queued, s.Capacity)},
		field{label: "overflow", value: s.Overflow.String()},
		field{label: "delivered", value: total(s.Delivered, s.Out)},
		field{label: "dropped", value: exact(s.Dropped), tone: alarming(s.Dropped).tone},
		field{label: "patterns", value: f.all(s.Patterns)},
	)
}

// meaning says what a state amounts to.
func meaning(s *core.SubscriptionStats) string {
	switch {
	case s.State == core.StateStalled:
		return ": reads nothing at the moment"
	case s.State == core.StateLagging && s.Overflow == core.OverflowEvict:
		return ": evicted when its queue is full"
	case s.State == core.StateLagging:
		return ": messages are dropped when its queue is full"
	case s.State == core.StateLeaving:
		return ": gets nothing more"
	}
	return ""
}

func (f *frame) groupFields(g *core.GroupStats) []field {
	full := fraction(g.Pending, g.Settings.Capacity)
	settings := fmt.Sprintf("ack %s, %s when full, %d attempts", ackMode(g.Settings.Ack), g.Settings.Overflow, g.Settings.MaxAttempts)
	if d := g.Settings.AckDeadline; d != nil && *d > 0 {
		settings += ", deadline " + every(*d)
	}
	return []field{
		{label: "group", value: f.name(g.Name), more: true},
		{label: "members", value: exact(g.Members), more: true},
		{label: "pending", value: fmt.Sprintf("%s of %s, %s %s", exact(g.Pending), exact(g.Settings.Capacity), percent(full), f.gauge(full, 10)), tone: fullness(g.Pending, g.Settings.Capacity)},
		{label: "in flight", value: exact(g.InFlight)},
		{label: "oldest", value: since(g.Oldest, f.now)},
		{label: "accepted", value: exact(g.Accepted), more: true},
		{label: "delivered", value: total(g.Delivered, g.Out), more: true},
		{label: "acked", value: exact(g.Acked)},
		{label: "redelivered", value: exact(g.Redelivered), tone: worrying(g.Redelivered).tone},
		{label: "expired", value: exact(g.Expired), tone: worrying(g.Expired).tone, more: true},
		{label: "dead letters", value: exact(g.DeadLetters), tone: alarming(g.DeadLetters).tone},
		{label: "dropped", value: exact(g.Dropped), tone: alarming(g.Dropped).tone, more: true},
		{label: "vain acks", value: exact(g.Ineffective), more: true},
		{label: "settings", value: settings},
		{label: "created", value: f.ago(g.Created), more: true},
	}
}

func ackMode(a core.AckMode) string {
	if a == core.AckNone {
		return "none"
	}
	return "explicit"
}

func (f *frame) memberFields(m *core.MemberStats) []field {
	return []field{
		{label: "member", value: f.name(m.ID)},
		{label: "group", value: f.name(m.Group)},
		{label: "client", value: f.name(m.Client)},
		{label: "peer", value: f.name(m.Peer)},
		{label: "joined", value: f.ago(m.Created)},
		{label: "state", value: clean(m.State, true), tone: state(m.State).tone},
		{label: "in flight", value: fmt.Sprintf("%d of %d", m.InFlight, m.MaxInFlight), tone: fullness(m.InFlight, m.MaxInFlight)},
		{label: "delivered", value: total(m.Delivered, m.Out)},
		{label: "acked", value: exact(m.Acked) + ", " + percent(m.Share) + " of its group's"},
		{label: "last ack", value: f.ago(m.LastAck)},
		{label: "patterns", value: f.all(m.Patterns)},
	}
}

func (f *frame) evictionFields(e *core.EvictionStats) []field {
	return []field{
		{label: "time", value: e.Time.In(f.zone).Format(time.DateTime) + ", " + f.ago(e.Time)},
		{label: "subscription", value: f.name(e.ID)},
		{label: "client", value: f.name(e.Client)},
		{label: "peer", value: f.name(e.Peer)},
		{label: "group", value: f.name(e.Group)},
		{label: "reason", value: f.name(e.Reason + ": " + e.Text), tone: toneWarning},
		{label: "lost", value: messages(e.Lost), tone: alarming(e.Lost).tone},
		{label: "queue", value: fmt.Sprintf("%s, %s", messages(uint64(max(e.Queued, 0))), size(float64(e.QueuedBytes), f.raw))},
		{label: "lived", value: span(e.Lived)},
		{label: "patterns", value: f.all(e.Patterns)},
	}
}

func total(n uint64, r core.Rates) string {
	return exact(n) + ", " + rate(r.Second) + "/s, " + rate(r.Minute*60) + "/min"
}

func (f *frame) ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return since(t, f.now) + " ago"
}

// all is a list of names in full.
func (f *frame) all(names []string) string {
	cleaned := make([]string, len(names))
	for i, n := range names {
		cleaned[i] = f.name(n)
	}
	return strings.Join(cleaned, "  ")
}
