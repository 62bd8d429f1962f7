package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
)

const (
	sideTiny = "tinybroker"
	sidePeer = "peer"
)

// results collects what was measured.
type results struct {
	rows   []row
	values map[string][][]float64 // by row and side: of each run, a value for each metric
	errs   []error
}

func newResults(rows []row) *results {
	return &results{rows: rows, values: map[string][][]float64{}}
}

func (r *results) add(name, side string, values []float64, err error) {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s, %s: %w", name, side, err))
		return
	}
	key := name + ":" + side
	r.values[key] = append(r.values[key], values)
}

func (r *results) err() error { return errors.Join(r.errs...) }

// table is Markdown. A ratio is that of the medians, tinybroker to peer.
func (r *results) table(s *settings) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs of each side in turn, %d processors, %s, %s.\n\n", s.runs, runtime.NumCPU(), runtime.Version(), versions())
	b.WriteString("| workload | unit | tinybroker | peer | | ratio | target |\n| --- | --- | ---: | ---: | --- | ---: | ---: |\n")
	for _, row := range r.rows {
		for i, m := range row.metrics {
			tiny, peer := r.medianOf(row.name, sideTiny, i), r.medianOf(row.name, sidePeer, i)
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", row.title+m.title, m.unit,
				m.number(tiny), m.number(peer), row.peer, ratio(tiny, peer), m.target)
		}
	}
	return b.String()
}

func (r *results) medianOf(name, side string, metric int) float64 {
	var values []float64
	for _, run := range r.values[name+":"+side] {
		values = append(values, run[metric])
	}
	return median(values)
}

// median of nothing is not a number.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

func ratio(tiny, peer float64) string {
	if math.IsNaN(tiny/peer) || math.IsInf(tiny/peer, 0) {
		return "-"
	}
	return fmt.Sprintf("%.2f", tiny/peer)
}

// metric is one figure of a row.
type metric struct {
	title  string // what tells it from the row's other figures
	unit   string
	target string
}

// number prints a value with about three digits.
func (m metric) number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1f k", v/1e3)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func describe(values []float64, err error) string {
	if err != nil {
		return err.Error()
	}
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = metric{}.number(v)
	}
	return strings.Join(parts, ", ")
}
