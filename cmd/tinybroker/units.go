package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// roughSize is a measured size for people: 3.2 MB.
func roughSize(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }

// sizeAndLimit are a size and the limit that it is over, for people: 3.2 MB and 1 MiB. Where rounding would make the size seem
// within the limit, both are in bytes.
func sizeAndLimit(size, limit int64) (roughly, most string) {
	rough := roughSize(size)
	if shown, err := humanize.ParseBytes(rough); err == nil && shown <= uint64(limit) {
		return humanize.Comma(size) + " B", humanize.Comma(limit) + " B"
	}
	return rough, spacedSize(limit)
}

// spacedSize is a configured size for people: 1 MiB.
func spacedSize(n int64) string {
	s := exactSize(n)
	i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	return s[:i] + " " + s[i:]
}

// count is a number of things: 1 message, 12,431 messages.
func count(n uint64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return number(n) + " " + thing
}

// number is a count for people: 20,000.
func number(n uint64) string { return humanize.Comma(int64(n)) }

// roughDuration is a measured time for people: 3.2s, 3m12s, 3d04h.
func roughDuration(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 24*time.Hour:
		return d.Round(time.Second).String()
	}
	hours := int(d / time.Hour)
	return fmt.Sprintf("%dd%02dh", hours/24, hours%24)
}
