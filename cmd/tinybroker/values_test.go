package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "65536": 65536, "1B": 1, "1KiB": 1024, "1kB": 1000, "1MiB": 1 << 20, "1MB": 1e6, "1 MiB": 1 << 20, "1mib": 1 << 20,
		"3GiB": 3 << 30, "2GB": 2e9, "1TiB": 1 << 40, "1TB": 1e12, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "+1", "1.5MiB", "1M", "1K", "1Mi", "1MiBs", "0x10", "1e6", "NaN", "9223372036854775808", "8388608TiB", "99999999999999999999TiB"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%q was read as %d", in, got)
		}
	}
}

// What a setting prints, it reads, and prints again.
func TestValuesReadWhatTheyPrint(t *testing.T) {
	var (
		n = 7
		b int64
		d time.Duration
	)
	for _, c := range []struct {
		v     pflag.Value
		texts []string
	}{
		{whole(&n, 0, math.MaxInt), []string{"0", "12", "9223372036854775807"}},
		{size(&b, 0, math.MaxInt64), []string{"0B", "1B", "1000B", "1KiB", "1500MiB", "1GiB"}},
		{span(&d, 0, longest), []string{"0", "1ns", "1.5s", "1m", "1m30s", "1h", "1h30m", "25h0m1s"}},
	} {
		for _, text := range c.texts {
			if err := c.v.Set(text); err != nil {
				t.Errorf("%s %q: %v", c.v.Type(), text, err)
			} else if c.v.String() != text {
				t.Errorf("%s %q prints as %q", c.v.Type(), text, c.v.String())
			}
		}
	}
}

func TestDuration(t *testing.T) {
	d := time.Second
	v := span(&d, time.Millisecond, time.Hour)
	for in, want := range map[string]string{
		"5": "has no unit: write 5s for seconds", "1.5": "has no unit", "": "is not a duration", "5x": "is not a duration",
		"-5s": "is not a duration", "+5s": "is not a duration", "1h1h": "is not a duration", "1s1m": "is not a duration",
		"NaN": "is not a duration", "1e12": "has no unit", "0": "is not between 1ms and 1h", "2h": "is not between 1ms and 1h",
		"9223372036854775807h": "is not a duration",
	} {
		if err := v.Set(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
	if d != time.Second {
		t.Errorf("a refused value has changed the setting to %v", d)
	}
}

func TestParseDelimiter(t *testing.T) {
	for in, want := range map[string]string{`\n`: "\n", `\r\n`: "\r\n", `\t`: "\t", `\0`: "\x00", `\x00\xfF`: "\x00\xff", `\\n`: `\n`, "--": "--", "é": "é", "": ""} {
		if got, err := parseDelimiter(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{`\`, `a\`, `\q`, `\x`, `\x1`, `\xg0`, `\x1g`} {
		if got, err := parseDelimiter(in); err == nil {
			t.Errorf("%q was read as %q", in, got)
		}
	}
}

// A size that is over a limit never reads as if it were within it.
func TestSizeAndLimit(t *testing.T) {
	for _, c := range []struct {
		size, limit int64
		want        string
	}{
		{3_200_000, 1 << 20, "3.2 MB over 1 MiB"},
		{1<<20 + 1, 1 << 20, "1,048,577 B over 1,048,576 B"},
		{1_049_999, 1 << 20, "1,049,999 B over 1,048,576 B"},
		{1_050_000, 1 << 20, "1.1 MB over 1 MiB"},
		{1_000_001, 1_000_000, "1,000,001 B over 1,000,000 B"},
		{64<<20 + 1, 64 << 20, "67,108,865 B over 67,108,864 B"},
		{6, 5, "6 B over 5 B"},
		{1 << 40, 1, "1.1 TB over 1 B"},
	} {
		size, limit := sizeAndLimit(c.size, c.limit)
		if got := size + " over " + limit; got != c.want {
			t.Errorf("%d over %d: %s, want %s", c.size, c.limit, got, c.want)
		}
	}
}
