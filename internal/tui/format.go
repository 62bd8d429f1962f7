package tui

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// count is a number in at most five characters: 8, 999, 8.2k, 18.4k, 311k, 1.2M.
func count[N int | int64 | uint64](n N) string { return scaled(float64(n)) }

// scaled is a number that is not negative in at most five characters. What is no number, or less than nothing, shows as 0.
func scaled(v float64) string {
	if !(v > 0) {
		return "0"
	}
	if v < 999.5 {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	for _, unit := range []string{"k", "M", "G", "T"} {
		v /= 1000
		switch {
		case v < 99.95:
			return strconv.FormatFloat(v, 'f', 1, 64) + unit
		case v < 999.5:
			return strconv.FormatFloat(v, 'f', 0, 64) + unit
		}
	}
	return ">1e15"
}

// rate is a number a second; small ones have a digit after the point, since one a minute is not nothing.
func rate(v float64) string {
	switch {
	case !(v > 0):
		return "0"
	case v < 0.05:
		return "<0.1"
	case v < 9.95 && math.Abs(v-math.Round(v)) >= 0.05:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return scaled(v)
}

// size is a number of bytes: 3.1 MB; exact when raw is set.
func size(v float64, raw bool) string {
	if !(v > 0) {
		return "0 B"
	}
	if raw || v < 999.5 {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64) + " B"
	}
	s := scaled(v)
	if last := len(s) - 1; s[last] == 'k' || s[last] == 'M' || s[last] == 'G' || s[last] == 'T' {
		return s[:last] + " " + s[last:] + "B"
	}
	return s + " B"
}

// mebibytes is memory as limits are set: 118M of 512M; exact when raw is set.
func mebibytes(n int64, raw bool) string {
	switch {
	case n <= 0:
		return "0"
	case raw || n < 1<<10:
		return strconv.FormatInt(n, 10) + "B"
	case n >= 10<<30:
		return fmt.Sprintf("%.1fG", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%dM", n>>20)
	}
	return fmt.Sprintf("%dK", n>>10)
}

// span is a time in at most six characters: 2ms, 5s, 3m12s, 2h05m, 3d04h, 412d.
func span(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "0ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 100*24*time.Hour:
		return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// since is how long before now t was; a dash where it never was.
func since(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(max(0, now.Sub(t)))
}

// percent is a part of a whole. What is not quite full is not 100%, and what is not empty is not 0%.
func percent(fraction float64) string {
	switch {
	case !(fraction > 0):
		return "0%"
	case fraction < 0.01:
		return "<1%"
	case fraction > 0.99 && fraction < 1:
		return "99%"
	}
	return strconv.Itoa(int(math.Round(fraction*100))) + "%"
}

// exact is a number with all its digits.
func exact[N int | uint64](n N) string {
	digits := strconv.FormatUint(uint64(max(n, 0)), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// messages is a number of them, with all its digits.
func messages(n uint64) string {
	if n == 1 {
		return "1 message"
	}
	return exact(n) + " messages"
}

// seconds is a time that goes by on the screen.
func seconds(d time.Duration) string {
	if d < time.Second {
		return "0s"
	}
	return span(d)
}

// plural is a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}
