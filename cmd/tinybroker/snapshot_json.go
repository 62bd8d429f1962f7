package main

import (
	"encoding/json"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// The JSON of top and ls. Fields are only ever added. Numbers are whole: messages, bytes, seconds; a rate is told over the
// last second and over the last minute.

const snapshotSchema = 1

type snapshotJSON struct {
	SchemaVersion int                 `json:"schema_version"`
	Time          time.Time           `json:"time"`
	Address       string              `json:"address"`
	GapSeconds    int64               `json:"gap_seconds,omitempty"` // --batch: how long there was no connection before this
	Broker        brokerJSON          `json:"broker"`
	Rows          map[string]int      `json:"rows"` // of each kind, those that --limit left out included
	Topics        *[]topicJSON        `json:"topics,omitempty"`
	Subscriptions *[]subscriptionJSON `json:"subscriptions,omitempty"`
	Groups        *[]groupJSON        `json:"groups,omitempty"`
	Members       *[]memberJSON       `json:"members,omitempty"`
	Evictions     *[]evictionJSON     `json:"evictions,omitempty"`
}

type brokerJSON struct {
	RunID         string    `json:"run_id"`
	Version       string    `json:"version"`
	StartTime     time.Time `json:"start_time"`
	UptimeSeconds int64     `json:"uptime_seconds"`
	Connections   int       `json:"connections"`
	Topics        int       `json:"topics"`
	Subscriptions int       `json:"subscriptions"`
	Groups        int       `json:"groups"`
	Queued        int64     `json:"queued_messages"`
	Memory        int64     `json:"memory_bytes"`
	MaxMemory     int64     `json:"memory_limit_bytes"`

	Published      uint64 `json:"published_messages"`
	PublishedBytes uint64 `json:"published_bytes"`
	Delivered      uint64 `json:"delivered_messages"`
	DeliveredBytes uint64 `json:"delivered_bytes"`
	Unrouted       uint64 `json:"unrouted_messages"`
	Refused        uint64 `json:"refused_messages"`
	Dropped        uint64 `json:"dropped_messages"`
	Lost           uint64 `json:"lost_messages"`
	DeadLetters    uint64 `json:"dead_letters"`
	Evictions      uint64 `json:"evictions"`

	InPerSecond       int64 `json:"in_per_second"`
	InPerMinute       int64 `json:"in_per_minute"`
	InBytesPerSecond  int64 `json:"in_bytes_per_second"`
	OutPerSecond      int64 `json:"out_per_second"`
	OutPerMinute      int64 `json:"out_per_minute"`
	OutBytesPerSecond int64 `json:"out_bytes_per_second"`
}

type topicJSON struct {
	Topic            string     `json:"topic"`
	In               uint64     `json:"in_messages"`
	InBytes          uint64     `json:"in_bytes"`
	Out              uint64     `json:"out_messages"`
	Subscriptions    int        `json:"subscriptions"`
	Groups           int        `json:"groups"`
	LastPublished    *time.Time `json:"last_published"`
	InPerSecond      int64      `json:"in_per_second"`
	InPerMinute      int64      `json:"in_per_minute"`
	InBytesPerSecond int64      `json:"in_bytes_per_second"`
	OutPerSecond     int64      `json:"out_per_second"`
	OutPerMinute     int64      `json:"out_per_minute"`
}

type subscriptionJSON struct {
	ID           string     `json:"id"`
	Client       string     `json:"client"`
	Peer         string     `json:"peer"`
	Patterns     []string   `json:"patterns"`
	Group        string     `json:"group"`
	State        string     `json:"state"`
	Overflow     string     `json:"overflow"`
	Queued       int        `json:"queued_messages"`
	QueuedBytes  int64      `json:"queued_bytes"`
	Capacity     int        `json:"capacity_messages"`
	InFlight     int        `json:"in_flight"`
	Delivered    uint64     `json:"delivered_messages"`
	Dropped      uint64     `json:"dropped_messages"`
	Created      *time.Time `json:"created"`
	AgeSeconds   int64      `json:"age_seconds"`
	OutPerSecond int64      `json:"out_per_second"`
	OutPerMinute int64      `json:"out_per_minute"`
}

type groupJSON struct {
	Group         string     `json:"group"`
	Members       int        `json:"members"`
	Pending       int        `json:"pending_messages"`
	Capacity      int        `json:"capacity_messages"`
	InFlight      int        `json:"in_flight"`
	OldestSeconds int64      `json:"oldest_seconds"` // how long the message has waited that has waited longest
	Accepted      uint64     `json:"accepted_messages"`
	Delivered     uint64     `json:"delivered_messages"`
	Acked         uint64     `json:"acked_messages"`
	Redelivered   uint64     `json:"redelivered_messages"`
	Expired       uint64     `json:"expired_deliveries"`
	DeadLetters   uint64     `json:"dead_letters"`
	Dropped       uint64     `json:"dropped_messages"`
	Ineffective   uint64     `json:"ineffective_acks"`
	Created       *time.Time `json:"created"`
	OutPerSecond  int64      `json:"out_per_second"`
	OutPerMinute  int64      `json:"out_per_minute"`
}

type memberJSON struct {
	ID           string     `json:"id"`
	Client       string     `json:"client"`
	Peer         string     `json:"peer"`
	Group        string     `json:"group"`
	Patterns     []string   `json:"patterns"`
	State        string     `json:"state"`
	InFlight     int        `json:"in_flight"`
	MaxInFlight  int        `json:"max_in_flight"`
	Delivered    uint64     `json:"delivered_messages"`
	Acked        uint64     `json:"acked_messages"`
	SharePercent int        `json:"share_percent"`
	LastAck      *time.Time `json:"last_ack"`
	Created      *time.Time `json:"created"`
	OutPerSecond int64      `json:"out_per_second"`
	OutPerMinute int64      `json:"out_per_minute"`
}

type evictionJSON struct {
	Time         *time.Time `json:"time"`
	ID           string     `json:"id"`
	Client       string     `json:"client"`
	Peer         string     `json:"peer"`
	Patterns     []string   `json:"patterns"`
	Group        string     `json:"group"`
	Reason       string     `json:"reason"`
	Text         string     `json:"text"`
	Lost         uint64     `json:"lost_messages"`
	Queued       int        `json:"queued_messages"`
	QueuedBytes  int64      `json:"queued_bytes"`
	LivedSeconds int64      `json:"lived_seconds"`
}

// writeSnapshotJSON writes a snapshot as one line: the rows of a view, or of all.
func writeSnapshotJSON(w io.Writer, snap *core.Snapshot, v core.View, address string, gap time.Duration) error {
	data, err := json.Marshal(newSnapshotJSON(snap, v, address, gap))
	if err != nil {
		return err
	}
	_, err = w.Write(append(escapeJSON(nil, data), '\n'))
	return err
}

// escapeJSON escapes what could drive a terminal in finished JSON, where beyond ASCII it stands inside strings only.
func escapeJSON(dst, data []byte) []byte {
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if hostile(r) {
			dst = appendJSONEscape(dst, r)
		} else {
			dst = append(dst, data[:n]...)
		}
		data = data[n:]
	}
	return dst
}

func newSnapshotJSON(snap *core.Snapshot, v core.View, address string, gap time.Duration) *snapshotJSON {
	j := &snapshotJSON{
		SchemaVersion: snapshotSchema, Time: snap.Broker.Time, Address: address, GapSeconds: wholeSeconds(gap),
		Broker: newBrokerJSON(snap), Rows: map[string]int{},
	}
	now := snap.Broker.Time
	shows := func(view core.View) bool { return v == core.ViewAll || v == view }
	if shows(core.ViewTopics) {
		j.Topics = eachRow(snap.Topics, newTopicJSON)
		j.Rows["topics"] = snap.Rows.Topics
	}
	if shows(core.ViewSubscriptions) {
		j.Subscriptions = eachRow(snap.Subscriptions, func(s *core.SubscriptionStats) subscriptionJSON { return newSubscriptionJSON(s, now) })
		j.Rows["subscriptions"] = snap.Rows.Subscriptions
	}
	if shows(core.ViewGroups) {
		j.Groups = eachRow(snap.Groups, func(g *core.GroupStats) groupJSON { return newGroupJSON(g, now) })
		j.Rows["groups"] = snap.Rows.Groups
	}
	if shows(core.ViewMembers) {
		j.Members = eachRow(snap.Members, newMemberJSON)
		j.Rows["members"] = snap.Rows.Members
	}
	if shows(core.ViewEvictions) {
		j.Evictions = eachRow(snap.Evictions, newEvictionJSON)
		j.Rows["evictions"] = snap.Rows.Evictions
	}
	return j
}

// eachRow converts rows; none are an empty list, not null.
func eachRow[A, B any](rows []A, convert func(*A) B) *[]B {
	list := make([]B, len(rows))
	for i := range rows {
		list[i] = convert(&rows[i])
	}
	return &list
}

// wholeSeconds rounds to seconds, but what took any time at all took one.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(1, int64(math.Round(d.Seconds())))
}

// wholeRate rounds a rate to messages or bytes.
func wholeRate(v float64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(math.Round(v))
}

func perMinute(r core.Rates) int64 { return wholeRate(r.Minute * 60) }

// instant is null for what never was.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func age(t, now time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return int64(max(0, now.Sub(t)) / time.Second)
}
