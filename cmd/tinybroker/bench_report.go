package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"codeberg.org/tinybroker/tinybroker/internal/bench"
)

// benchReport is what bench prints; the names are those of its JSON.
type benchReport struct {
	Parameters benchParameters `json:"parameters"`

	PublishedMessages  int64   `json:"published_messages"`
	PublishSeconds     float64 `json:"publish_seconds"`
	PublishedPerSecond float64 `json:"published_messages_per_second"`
	PublishedBytesRate float64 `json:"published_bytes_per_second"`

	DeliveredMessages  int64   `json:"delivered_messages"`
	DeliverSeconds     float64 `json:"deliver_seconds"`
	DeliveredPerSecond float64 `json:"delivered_messages_per_second"`
	DeliveredBytesRate float64 `json:"delivered_bytes_per_second"`

	Latency benchLatency `json:"latency_ns"`

	Lost       int64 `json:"lost_messages"`
	Duplicated int64 `json:"duplicated_messages"`
	Foreign    int64 `json:"foreign_messages"`
	Refused    int64 `json:"refused_messages"`
	Evicted    int64 `json:"evicted_subscribers"`
}

// benchParameters echo what was asked for.
type benchParameters struct {
	Server      string  `json:"server"`
	Embedded    bool    `json:"embedded"`
	Version     string  `json:"version"`
	Publishers  int     `json:"pubs"`
	Subscribers int     `json:"subs"`
	Group       string  `json:"group"`
	Ack         string  `json:"ack"`
	MaxInFlight int     `json:"max_in_flight"`
	Size        int     `json:"size_bytes"`
	Messages    int64   `json:"msgs"`
	Duration    float64 `json:"duration_seconds"`
	Rate        float64 `json:"rate"`
	Warmup      float64 `json:"warmup_seconds"`
	Topics      int     `json:"topics"`
	MaxWait     float64 `json:"max_wait_seconds"`
}

type benchLatency struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p99_9"`
	Max  int64 `json:"max"`
}

func newBenchReport(o *benchOptions, r *bench.Result) *benchReport {
	l := &o.load
	report := &benchReport{
		Parameters: benchParameters{
			Server: o.server, Embedded: o.embedded, Version: buildVersion(),
			Publishers: l.Publishers, Subscribers: l.Subscribers, Group: l.Group, MaxInFlight: l.MaxInFlight,
			Size: l.Size, Messages: l.Messages, Duration: l.Duration.Seconds(), Rate: l.Rate, Warmup: l.Warmup.Seconds(),
			Topics: l.Topics, MaxWait: l.MaxWait.Seconds(),
		},
		PublishedMessages: r.Published, PublishSeconds: r.Publishing.Seconds(),
		PublishedPerSecond: bench.PerSecond(r.Published, r.Publishing),
		DeliveredMessages:  r.Delivered, DeliverSeconds: r.Delivering.Seconds(),
		DeliveredPerSecond: bench.PerSecond(r.Delivered, r.Delivering),
		Latency: benchLatency{
			P50: r.Latency.ValueAtPercentile(50), P90: r.Latency.ValueAtPercentile(90), P99: r.Latency.ValueAtPercentile(99),
			P999: r.Latency.ValueAtPercentile(99.9), Max: r.Latency.Max(),
		},
		Lost: r.Lost, Duplicated: r.Duplicated, Foreign: r.Foreign, Refused: r.Refused, Evicted: r.Evicted,
	}
	report.PublishedBytesRate = report.PublishedPerSecond * float64(l.Size)
	report.DeliveredBytesRate = report.DeliveredPerSecond * float64(l.Size)
	if l.Group != "" {
		report.Parameters.Ack = o.ack
	}
	return report
}

func (r *benchReport) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "load\t%s\n", safe(r.Parameters.String()))
	fmt.Fprintf(t, "published\t%s in %s\t%s\n", count(uint64(r.PublishedMessages), "message"),
		shortSeconds(r.PublishSeconds), rates(r.PublishedPerSecond, r.PublishedBytesRate))
	if r.Parameters.Subscribers > 0 {
		fmt.Fprintf(t, "delivered\t%s in %s\t%s\n", count(uint64(r.DeliveredMessages), "message"),
			shortSeconds(r.DeliverSeconds), rates(r.DeliveredPerSecond, r.DeliveredBytesRate))
	}
	if r.DeliveredMessages > 0 {
		l := r.Latency
		fmt.Fprintf(t, "latency\tp50 %s, p90 %s, p99 %s, p99.9 %s, max %s\n",
			shortLatency(l.P50), shortLatency(l.P90), shortLatency(l.P99), shortLatency(l.P999), shortLatency(l.Max))
	}
	fmt.Fprintf(t, "problems\t%s\n", r.problems())
	return t.Flush()
}

func (r *benchReport) problems() string {
	if r.Lost == 0 && r.Duplicated == 0 && r.Foreign == 0 && r.Refused == 0 && r.Evicted == 0 {
		return "none: nothing lost, duplicated, refused or evicted"
	}
	text := fmt.Sprintf("%s lost, %s duplicated, %s refused, %s evicted",
		humanize.Comma(r.Lost), humanize.Comma(r.Duplicated), humanize.Comma(r.Refused), count(uint64(r.Evicted), "subscriber"))
	if r.Foreign > 0 {
		text += fmt.Sprintf(", %s foreign", humanize.Comma(r.Foreign))
	}
	return text
}

// String is the load in one line.
func (p *benchParameters) String() string {
	parts := []string{
		count(uint64(p.Publishers), "publisher"), count(uint64(p.Subscribers), "subscriber"),
		exactSize(int64(p.Size)), count(uint64(p.Topics), "topic"),
	}
	if p.Group != "" {
		parts = append(parts, fmt.Sprintf("group %s, ack %s", p.Group, p.Ack))
		if p.MaxInFlight > 0 {
			parts = append(parts, fmt.Sprintf("%d in flight", p.MaxInFlight))
		}
	}
	if p.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%v a second", p.Rate))
	}
	if p.Messages == 0 {
		parts = append(parts, fmt.Sprintf("for %vs", p.Duration))
	}
	parts = append(parts, fmt.Sprintf("warm-up %vs", p.Warmup), fmt.Sprintf("max wait %vs", p.MaxWait))
	if p.Embedded {
		return strings.Join(append(parts, "embedded broker"), ", ")
	}
	return strings.Join(append(parts, "broker "+p.Server), ", ")
}

func rates(messages, bytes float64) string {
	perSecond := humanize.Comma(int64(math.Round(messages)))
	if messages < 9.95 {
		perSecond = fmt.Sprintf("%.1f", messages)
	}
	return fmt.Sprintf("%s messages/s, %s/s", perSecond, roughSize(int64(math.Round(bytes))))
}

func shortSeconds(s float64) string { return fmt.Sprintf("%.2fs", s) }

// shortLatency is a latency with three digits.
func shortLatency(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.3gµs", float64(d)/float64(time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%.3gms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2fs", d.Seconds())
}

// progressLine is a bar and how far it has come, short enough for the narrowest usual terminal.
func progressLine(p bench.Progress) string {
	const width = 20
	full := int(p.Done * width)
	what := "measuring"
	if p.Warmup {
		what = "warming up"
	}
	return fmt.Sprintf("[%s%s] %3.0f%% %s: %.0f/s in, %.0f/s out", strings.Repeat("#", full), strings.Repeat(".", width-full),
		p.Done*100, what, bench.PerSecond(p.Published, p.Elapsed), bench.PerSecond(p.Delivered, p.Elapsed))
}
