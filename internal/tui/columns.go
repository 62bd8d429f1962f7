package tui

import (
	"strconv"
	"strings"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// The columns of each kind of row. Ranks say which go first where there is no room for all.

var topicKind = kind[core.TopicStats]{
	key: func(t *core.TopicStats) string { return t.Topic },
	columns: []column[core.TopicStats]{
		{head{title: "TOPIC", sort: "topic", want: 28, least: 10, flex: 4, ascending: true}, func(t *core.TopicStats, f *frame) cell { return cell{text: f.label(t.Topic)} }},
		{head{title: "IN/s", sort: "in", want: 6, least: 6, rank: 1, right: true}, func(t *core.TopicStats, _ *frame) cell { return quiet(rate(t.In.Second)) }},
		{head{title: "OUT/s", sort: "out", want: 6, least: 6, rank: 2, right: true}, func(t *core.TopicStats, _ *frame) cell { return quiet(rate(t.Out.Second)) }},
		{head{title: "SUBS", sort: "subs", want: 5, least: 5, rank: 3, right: true}, func(t *core.TopicStats, _ *frame) cell { return quiet(count(t.Subscriptions)) }},
		{head{title: "LAST", sort: "last", want: 6, least: 6, rank: 5, right: true}, func(t *core.TopicStats, f *frame) cell { return cell{text: since(t.LastPublished, f.now)} }},
		{head{title: "B/s", sort: "bytes", want: 8, least: 8, rank: 6, right: true}, func(t *core.TopicStats, f *frame) cell { return quiet(size(t.InBytesPS.Second, f.raw)) }},
		{head{title: "GROUPS", sort: "groups", want: 7, least: 7, rank: 7, right: true}, func(t *core.TopicStats, _ *frame) cell { return quiet(count(t.Groups)) }},
		{head{title: "LAST 60 s", want: 10, least: 10, rank: 8, flex: 2, most: 60, picture: true}, func(t *core.TopicStats, f *frame) cell {
			return cell{text: f.sparkline(t.History, f.width), tone: toneGood}
		}},
		{head{title: "IN/min", want: 6, least: 6, rank: 9, right: true}, func(t *core.TopicStats, _ *frame) cell { return quiet(scaled(t.In.Minute * 60)) }},
		{head{title: "IN", want: 6, least: 6, rank: 10, right: true}, func(t *core.TopicStats, _ *frame) cell { return quiet(count(t.InMsgs)) }},
		{head{title: "OUT", want: 6, least: 6, rank: 11, right: true}, func(t *core.TopicStats, _ *frame) cell { return quiet(count(t.OutMsgs)) }},
	},
}

var subscriptionKind = kind[core.SubscriptionStats]{
	key: func(s *core.SubscriptionStats) string { return s.ID },
	columns: []column[core.SubscriptionStats]{
		{head{title: "SUBSCRIPTION", sort: "subscription", want: 13, least: 6, flex: 2, ascending: true}, func(s *core.SubscriptionStats, f *frame) cell { return cell{text: f.label(s.ID)} }},
		{head{title: "CLIENT", sort: "client", want: 11, least: 6, rank: 3, flex: 2, ascending: true}, func(s *core.SubscriptionStats, f *frame) cell { return cell{text: f.label(s.Client)} }},
		{head{title: "PATTERNS", want: 15, least: 6, rank: 4, flex: 3}, func(s *core.SubscriptionStats, f *frame) cell { return cell{text: f.labels(s.Patterns)} }},
		{head{title: "STATE", want: 7, least: 7, rank: 1}, func(s *core.SubscriptionStats, _ *frame) cell { return state(s.State) }},
		{head{title: "QUEUE", sort: "queue", want: 11, least: 11, rank: 2, right: true}, func(s *core.SubscriptionStats, _ *frame) cell {
			return cell{text: count(s.Queued) + "/" + count(s.Capacity), tone: fullness(s.Queued, s.Capacity)}
		}},
		{head{title: "FULL", want: 6, least: 6, rank: 4, picture: true}, func(s *core.SubscriptionStats, f *frame) cell {
			return cell{text: f.gauge(fraction(s.Queued, s.Capacity), f.width), tone: fullness(s.Queued, s.Capacity)}
		}},
		{head{title: "OUT/s", sort: "out", want: 6, least: 6, rank: 5, right: true}, func(s *core.SubscriptionStats, _ *frame) cell { return quiet(rate(s.Out.Second)) }},
		{head{title: "DROPPED", sort: "dropped", want: 8, least: 8, rank: 6, right: true}, func(s *core.SubscriptionStats, _ *frame) cell { return alarming(s.Dropped) }},
		{head{title: "GROUP", want: 10, least: 10, rank: 7, flex: 1}, func(s *core.SubscriptionStats, f *frame) cell { return cell{text: f.label(s.Group)} }},
		{head{title: "AGE", sort: "age", want: 6, least: 6, rank: 8, right: true}, func(s *core.SubscriptionStats, f *frame) cell { return cell{text: since(s.Created, f.now)} }},
		{head{title: "PEER", want: 21, least: 21, rank: 9, flex: 1}, func(s *core.SubscriptionStats, f *frame) cell { return cell{text: f.label(s.Peer)} }},
		{head{title: "DELIVERED", want: 9, least: 9, rank: 10, right: true}, func(s *core.SubscriptionStats, _ *frame) cell { return quiet(count(s.Delivered)) }},
	},
}

var groupKind = kind[core.GroupStats]{
	key: func(g *core.GroupStats) string { return g.Name },
	columns: []column[core.GroupStats]{
		{head{title: "GROUP", sort: "group", want: 18, least: 8, flex: 3, ascending: true}, func(g *core.GroupStats, f *frame) cell { return cell{text: f.label(g.Name)} }},
		{head{title: "MEMBERS", sort: "members", want: 8, least: 8, rank: 2, right: true}, func(g *core.GroupStats, _ *frame) cell {
			if g.Members == 0 {
				return cell{text: "none", tone: toneBad}
			}
			return cell{text: count(g.Members)}
		}},
		{head{title: "PENDING", sort: "pending", want: 8, least: 8, rank: 1, right: true}, func(g *core.GroupStats, _ *frame) cell {
			return cell{text: count(g.Pending), tone: fullness(g.Pending, g.Settings.Capacity)}
		}},
		{head{title: "IN-FLIGHT", sort: "in-flight", want: 10, least: 10, rank: 3, right: true}, func(g *core.GroupStats, _ *frame) cell { return quiet(count(g.InFlight)) }},
		{head{title: "OUT/s", sort: "out", want: 6, least: 6, rank: 5, right: true}, func(g *core.GroupStats, _ *frame) cell { return quiet(rate(g.Out.Second)) }},
		{head{title: "OLDEST", want: 6, least: 6, rank: 6, right: true}, func(g *core.GroupStats, f *frame) cell { return cell{text: since(g.Oldest, f.now)} }},
		{head{title: "REDELIV", sort: "redelivered", want: 8, least: 8, rank: 7, right: true}, func(g *core.GroupStats, _ *frame) cell { return worrying(g.Redelivered) }},
		{head{title: "DEAD", sort: "dead", want: 5, least: 5, rank: 8, right: true}, func(g *core.GroupStats, _ *frame) cell { return alarming(g.DeadLetters) }},
		{head{title: "FULL", want: 6, least: 6, rank: 9, picture: true}, func(g *core.GroupStats, f *frame) cell {
			return cell{text: f.gauge(fraction(g.Pending, g.Settings.Capacity), f.width), tone: fullness(g.Pending, g.Settings.Capacity)}
		}},
		{head{title: "DROPPED", want: 8, least: 8, rank: 10, right: true}, func(g *core.GroupStats, _ *frame) cell { return alarming(g.Dropped) }},
		{head{title: "ACKED", want: 6, least: 6, rank: 11, right: true}, func(g *core.GroupStats, _ *frame) cell { return quiet(count(g.Acked)) }},
		{head{title: "EXPIRED", want: 8, least: 8, rank: 12, right: true}, func(g *core.GroupStats, _ *frame) cell { return worrying(g.Expired) }},
		{head{title: "ACCEPTED", want: 8, least: 8, rank: 13, right: true}, func(g *core.GroupStats, _ *frame) cell { return quiet(count(g.Accepted)) }},
	},
}

var memberKind = kind[core.MemberStats]{
	key: func(m *core.MemberStats) string { return m.ID },
	columns: []column[core.MemberStats]{
		{head{title: "MEMBER", sort: "member", want: 13, least: 6, flex: 2, ascending: true}, func(m *core.MemberStats, f *frame) cell { return cell{text: f.label(m.ID)} }},
		{head{title: "CLIENT", sort: "client", want: 14, least: 6, rank: 4, flex: 2, ascending: true}, func(m *core.MemberStats, f *frame) cell { return cell{text: f.label(m.Client)} }},
		{head{title: "STATE", want: 7, least: 7, rank: 3}, func(m *core.MemberStats, _ *frame) cell { return state(m.State) }},
		{head{title: "IN-FLIGHT", sort: "in-flight", want: 11, least: 11, rank: 1, right: true}, func(m *core.MemberStats, _ *frame) cell {
			return cell{text: count(m.InFlight) + "/" + count(m.MaxInFlight), tone: fullness(m.InFlight, m.MaxInFlight)}
		}},
		{head{title: "SHARE", sort: "share", want: 6, least: 6, rank: 3, right: true}, func(m *core.MemberStats, _ *frame) cell { return quiet(percent(m.Share)) }},
		{head{title: "LAST ACK", sort: "ack", want: 9, least: 9, rank: 2, right: true}, func(m *core.MemberStats, f *frame) cell { return cell{text: since(m.LastAck, f.now)} }},
		{head{title: "OUT/s", sort: "out", want: 6, least: 6, rank: 5, right: true}, func(m *core.MemberStats, _ *frame) cell { return quiet(rate(m.Out.Second)) }},
		{head{title: "ACKED", want: 6, least: 6, rank: 6, right: true}, func(m *core.MemberStats, _ *frame) cell { return quiet(count(m.Acked)) }},
		{head{title: "GROUP", sort: "group", want: 10, least: 10, rank: 7, flex: 1, ascending: true}, func(m *core.MemberStats, f *frame) cell { return cell{text: f.label(m.Group)} }},
		{head{title: "PATTERNS", want: 15, least: 6, rank: 8, flex: 3}, func(m *core.MemberStats, f *frame) cell { return cell{text: f.labels(m.Patterns)} }},
		{head{title: "AGE", want: 6, least: 6, rank: 9, right: true}, func(m *core.MemberStats, f *frame) cell { return cell{text: since(m.Created, f.now)} }},
		{head{title: "PEER", want: 21, least: 21, rank: 10, flex: 1}, func(m *core.MemberStats, f *frame) cell { return cell{text: f.label(m.Peer)} }},
		{head{title: "DELIVERED", want: 9, least: 9, rank: 11, right: true}, func(m *core.MemberStats, _ *frame) cell { return quiet(count(m.Delivered)) }},
	},
}

var evictionKind = kind[core.EvictionStats]{
	key: func(e *core.EvictionStats) string { return e.ID + " " + strconv.FormatInt(e.Time.UnixNano(), 36) },
	columns: []column[core.EvictionStats]{
		{head{title: "TIME", sort: "time", want: 9, least: 9}, func(e *core.EvictionStats, f *frame) cell { return cell{text: f.clock(e.Time)} }},
		{head{title: "SUBSCRIPTION", sort: "subscription", want: 13, least: 6, rank: 2, flex: 2, ascending: true}, func(e *core.EvictionStats, f *frame) cell { return cell{text: f.label(e.ID)} }},
		{head{title: "CLIENT", sort: "client", want: 12, least: 6, rank: 3, flex: 2, ascending: true}, func(e *core.EvictionStats, f *frame) cell { return cell{text: f.label(e.Client)} }},
		{head{title: "PATTERNS", want: 15, least: 6, rank: 4, flex: 3}, func(e *core.EvictionStats, f *frame) cell { return cell{text: f.labels(e.Patterns)} }},
		{head{title: "REASON", sort: "reason", want: 10, least: 10, rank: 3, ascending: true}, func(e *core.EvictionStats, f *frame) cell { return cell{text: f.label(reason(e)), tone: toneWarning} }},
		{head{title: "LOST", sort: "lost", want: 6, least: 6, rank: 1, right: true}, func(e *core.EvictionStats, _ *frame) cell { return alarming(e.Lost) }},
		{head{title: "LIVED", sort: "lived", want: 6, least: 6, rank: 5, right: true}, func(e *core.EvictionStats, _ *frame) cell { return cell{text: span(e.Lived)} }},
		{head{title: "QUEUE", want: 6, least: 6, rank: 6, right: true}, func(e *core.EvictionStats, _ *frame) cell { return quiet(count(e.Queued)) }},
		{head{title: "GROUP", want: 10, least: 10, rank: 7, flex: 1}, func(e *core.EvictionStats, f *frame) cell { return cell{text: f.label(e.Group)} }},
		{head{title: "PEER", want: 21, least: 21, rank: 8, flex: 1}, func(e *core.EvictionStats, f *frame) cell { return cell{text: f.label(e.Peer)} }},
	},
}

// queue is a row of the overview: what waits for one subscription, or for one group.
type queue struct {
	subscription *core.SubscriptionStats
	group        *core.GroupStats // nil: a subscription
}

func (q *queue) load() (queued, capacity int) {
	if q.group != nil {
		return q.group.Pending, q.group.Settings.Capacity
	}
	return q.subscription.Queued, q.subscription.Capacity
}

var queueKind = kind[queue]{
	key: func(q *queue) string {
		if q.group != nil {
			return "group " + q.group.Name
		}
		return "subscription " + q.subscription.ID
	},
	columns: []column[queue]{
		{head{title: "QUEUE OF", want: 14, least: 6, flex: 2}, func(q *queue, f *frame) cell {
			if q.group != nil {
				return cell{text: f.label(q.group.Name)}
			}
			return cell{text: f.label(q.subscription.ID)}
		}},
		{head{title: "CLIENT", want: 13, least: 6, rank: 3, flex: 2}, func(q *queue, f *frame) cell {
			switch {
			case q.group == nil:
				return cell{text: f.label(q.subscription.Client)}
			case q.group.Members == 0:
				return cell{text: "empty group", tone: toneBad}
			}
			return cell{text: "group of " + count(q.group.Members), tone: toneFaint}
		}},
		{head{title: "PATTERNS", want: 13, least: 6, rank: 4, flex: 3}, func(q *queue, f *frame) cell {
			if q.group != nil {
				return cell{}
			}
			return cell{text: f.labels(q.subscription.Patterns)}
		}},
		{head{title: "FULL", want: 14, least: 5, rank: 1}, func(q *queue, f *frame) cell {
			full := fraction(q.load())
			return cell{text: pad(percent(full), 4, true, "") + " " + f.gauge(full, f.width-5), tone: fullness(q.load())}
		}},
		{head{title: "WAITING", want: 7, least: 7, rank: 2, right: true}, func(q *queue, _ *frame) cell {
			queued, _ := q.load()
			return quiet(count(queued))
		}},
		{head{title: "OUT/s", want: 6, least: 6, rank: 5, right: true}, func(q *queue, _ *frame) cell {
			if q.group != nil {
				return quiet(rate(q.group.Out.Second))
			}
			return quiet(rate(q.subscription.Out.Second))
		}},
		{head{title: "STATE", want: 7, least: 7, rank: 6}, func(q *queue, _ *frame) cell {
			if q.group != nil {
				return cell{}
			}
			return state(q.subscription.State)
		}},
	},
}

// quiet draws a zero faintly, so that the eye finds the others.
func quiet(text string) cell {
	if text == "0" || text == "0 B" || text == "0%" {
		return cell{text: text, tone: toneFaint}
	}
	return cell{text: text}
}

// alarming is a count of what is lost.
func alarming(n uint64) cell {
	if n > 0 {
		return cell{text: count(n), tone: toneBad}
	}
	return quiet("0")
}

// worrying is a count of what should be rare.
func worrying(n uint64) cell {
	if n > 0 {
		return cell{text: count(n), tone: toneWarning}
	}
	return quiet("0")
}

func state(s string) cell {
	switch s {
	case core.StateActive:
		return cell{text: s, tone: toneGood}
	case core.StateLagging, core.StateLeaving:
		return cell{text: s, tone: toneWarning}
	}
	return cell{text: clean(s, true), tone: toneBad}
}

func fraction(n, of int) float64 {
	if of <= 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// fullness marks what is more than half full, and what is nearly full.
func fullness(n, of int) tone {
	switch f := fraction(n, of); {
	case n == 0:
		return toneFaint
	case f > 0.75:
		return toneBad
	case f > 0.5:
		return toneWarning
	}
	return toneText
}

// reason is why a subscription was evicted, in a word or two.
func reason(e *core.EvictionStats) string {
	for _, cause := range []string{"queue full", "memory full"} {
		if strings.HasPrefix(e.Text, cause) {
			return cause
		}
	}
	return e.Reason
}

// clock is a time of day, or a day when that is another one.
func (f *frame) clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if age := f.now.Sub(t); age > 20*time.Hour || age < -time.Hour {
		return t.In(f.zone).Format("Jan 2")
	}
	return t.In(f.zone).Format(time.TimeOnly)
}
