package tui

import (
	"math"
	"strings"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want string
		rate string
	}{
		{0, "0", "0"}, {-5, "0", "0"}, {math.NaN(), "0", "0"}, {math.Inf(1), ">1e15", ">1e15"}, {0.01, "0", "<0.1"}, {0.2, "0", "0.2"}, {1, "1", "1"},
		{1.5, "2", "1.5"}, {9.94, "10", "9.9"}, {9.96, "10", "10"}, {999, "999", "999"}, {999.6, "1.0k", "1.0k"}, {8200, "8.2k", "8.2k"}, {18_400, "18.4k", "18.4k"},
		{99_940, "99.9k", "99.9k"}, {99_960, "100k", "100k"}, {999_400, "999k", "999k"}, {999_600, "1.0M", "1.0M"}, {1e12, "1.0T", "1.0T"},
	} {
		if got := scaled(c.v); got != c.want || len(got) > 5 {
			t.Errorf("%v: %s, want %s", c.v, got, c.want)
		}
		if got := rate(c.v); got != c.rate || len(got) > 5 {
			t.Errorf("rate %v: %s, want %s", c.v, got, c.rate)
		}
	}
	if got := exact(uint64(math.MaxUint64)); got != "18,446,744,073,709,551,615" {
		t.Error(got)
	}
	for n, want := range map[int]string{-1: "0", 0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := exact(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 messages", 1: "1 message", 20_000: "20,000 messages"} {
		if got := messages(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0 B", -1: "0 B", 999: "999 B", 3_100_000: "3.1 MB", 700_000: "700 kB"} {
		if got := size(v, false); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for n, want := range map[int64]string{-1: "0", 0: "0", 381: "381B", 1 << 10: "1K", 512 << 20: "512M", 16 << 30: "16.0G"} {
		if got := mebibytes(n, false); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := mebibytes(512<<20, true); got != "536870912B" {
		t.Error(got)
	}
	for text, want := range map[string]string{"queue full (500)": "queue full", "memory full (1048576 bytes)": "memory full", "": "evicted"} {
		if got := reason(&core.EvictionStats{Reason: "evicted", Text: text}); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0%", 0.001: "<1%", 0.5: "50%", 0.999: "99%", 1: "100%", 1.5: "150%"} {
		if got := percent(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 0: "0ms", 2 * time.Millisecond: "2ms", 5900 * time.Millisecond: "5s", 192 * time.Second: "3m12s", 125 * time.Minute: "2h05m",
		76 * time.Hour: "3d04h", 100 * 24 * time.Hour: "100d", math.MaxInt64: "106751d",
	} {
		if got := span(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	if got := since(time.Time{}, noon); got != "-" {
		t.Errorf("never: %s", got)
	}
	if got := since(noon.Add(time.Second), noon); got != "0ms" {
		t.Errorf("in the future: %s", got)
	}
}

func TestPictures(t *testing.T) {
	g := &unicodeGlyphs
	for _, c := range []struct {
		values []uint32
		n      int
		want   string
	}{
		{nil, 3, "   "}, {[]uint32{1}, 0, ""}, {[]uint32{0, 1, 8, 4}, 4, " ▁█▄"}, {[]uint32{9, 9, 1, 2}, 2, "█▂"}, {[]uint32{5}, 3, "  █"},
		{[]uint32{8, 0, 0, 4, 0, 0, 0}, 3, "█▄ "}, {append([]uint32{3}, make([]uint32, 59)...), 28, "█" + strings.Repeat(" ", 27)},
		{[]uint32{0, 0}, 2, "  "}, {[]uint32{1, 1 << 31, 1<<32 - 1}, 3, "▁▅█"},
	} {
		if got := g.sparkline(c.values, c.n); got != c.want {
			t.Errorf("%v in %d: %q, want %q", c.values, c.n, got, c.want)
		}
	}
	for _, c := range []struct {
		fraction float64
		n        int
		want     string
	}{
		{0, 3, "   "}, {math.NaN(), 2, "  "}, {0.0001, 3, "▏  "}, {0.5, 3, "█▌ "}, {0.9999, 3, "██▉"}, {1, 3, "███"}, {1.5, 3, "███"}, {0.5, 0, ""}, {0.5, -2, ""},
	} {
		if got := g.gauge(c.fraction, c.n); got != c.want {
			t.Errorf("%v in %d: %q, want %q", c.fraction, c.n, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want int
	}{{"", 5, 1}, {"abc", 5, 1}, {"abc def ghi", 5, 3}, {"abcdefghijkl", 5, 3}, {"世界世界", 3, 4}, {"世", 1, 1}} {
		lines := wrap(c.text, c.n)
		if len(lines) != c.want {
			t.Errorf("%q in %d columns: %q", c.text, c.n, lines)
		}
		for _, l := range lines {
			if width(l) > c.n {
				t.Errorf("%q is wider than %d", l, c.n)
			}
		}
	}
}
