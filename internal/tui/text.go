package tui

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TextOptions say how WriteText writes.
type TextOptions struct {
	Address string // of the broker; empty: without the lines about the broker
	ASCII   bool   // names beyond ASCII are escaped
	Filter  string // what the rows were asked to contain; empty: nothing
	// Zone is the zone that times are told in; nil: the machine's.
	Zone *time.Location
}

// WriteText writes the rows of a view (ViewOverview: busiest topics, fullest queues and last evictions) as plain text: every
// column that is no picture, as wide as its content, no escape sequence. Names are escaped as on the screen.
func WriteText(w io.Writer, snap *core.Snapshot, v core.View, o TextOptions) error {
	e := newEnv(o.ASCII, false)
	f := &frame{env: e, now: snap.Broker.Time, zone: o.Zone}
	if f.zone == nil {
		f.zone = time.Local
	}
	out := bufio.NewWriter(w)
	if o.Address != "" {
		writeTotals(out, e, snap, o.Address)
	}
	s := newScreen(v)
	s.filter = o.Filter
	tables := s.tables(snap)
	for i, r := range tables {
		if o.Address != "" {
			fmt.Fprintln(out)
		}
		if len(tables) > 1 {
			fmt.Fprintln(out, s.panels[i].title)
		}
		f.writeTable(out, r, s.emptyText(e, &s.panels[i]))
	}
	return out.Flush()
}

func writeTotals(w io.Writer, e *env, snap *core.Snapshot, address string) {
	b, r := &snap.Broker, &snap.Rates
	fmt.Fprintf(w, "tinybroker %s  up %s  %s  mem %s/%s\n", e.name(address), span(b.Time.Sub(b.Started)),
		plural(b.Connections, "client"), mebibytes(b.Memory, false), mebibytes(b.MaxMemory, false))
	fmt.Fprintf(w, "in   %s/s, %s/s; %s in all\n", rate(r.In.Second), size(r.InBytes.Second, false), messages(b.Published))
	fmt.Fprintf(w, "out  %s/s, %s/s; %s in all\n", rate(r.Out.Second), size(r.OutBytes.Second, false), messages(b.Delivered))
	fmt.Fprintf(w, "evictions %s, dropped %s, lost with subscriptions %s, dead letters %s\n",
		exact(b.Evictions), exact(b.Dropped), exact(b.Lost), exact(b.DeadLetters))
	fmt.Fprintf(w, "topics %s, subscriptions %s, groups %s\n", exact(b.Topics), exact(b.Subscriptions), exact(b.Groups))
}

// widestColumn is how far a column is filled up. What is longer is written all the same, and moves what is behind it in its own row alone:
// one client with a list of patterns of 4 KiB would make every row of that length.
const widestColumn = 64

// writeTable writes the heads of the columns and all rows.
func (f *frame) writeTable(w io.Writer, r rows, empty string) {
	heads := r.heads()
	var lines [][]string
	widths := make([]int, len(heads))
	line := make([]string, 0, len(heads))
	for i := range heads {
		line = append(line, heads[i].title)
	}
	lines = append(lines, line)
	for n := range r.len() {
		line := make([]string, 0, len(heads))
		for c := range heads {
			text := ""
			if !heads[c].picture {
				text = r.cell(n, c, f).text
			}
			if strings.TrimSpace(text) == "" {
				text = "-"
			}
			line = append(line, strings.TrimSpace(text))
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		for c, text := range line {
			widths[c] = max(widths[c], min(width(text), widestColumn))
		}
	}
	if r.len() == 0 {
		fmt.Fprintln(w, empty)
		return
	}
	for _, line := range lines {
		var text strings.Builder
		for c := range line {
			if !heads[c].picture {
				text.WriteString(pad(line[c], max(widths[c], width(line[c])), heads[c].right, "") + "  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(text.String(), " "))
	}
}
