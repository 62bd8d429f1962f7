package tui

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, want, ascii string }{
		{"orders.created", "orders.created", "orders.created"},
		{"", "", ""},
		{"\x1b[2J", `\x1b[2J`, `\x1b[2J`},
		{"a\nb\tc\x7f", `a\x0ab\x09c\x7f`, `a\x0ab\x09c\x7f`},
		{"\u009b1m", `\u{9b}1m`, `\u{9b}1m`},
		{"\xff\xc3", `\xff\xc3`, `\xff\xc3`},
		{"a\u202eb", `a\u{202e}b`, `a\u{202e}b`},
		{"a\u200bb\u200dc", `a\u{200b}b\u{200d}c`, `a\u{200b}b\u{200d}c`},
		{"世界", "世界", `\u{4e16}\u{754c}`},
		{"é", "é", `\u{e9}`},
		{"e\u0301\u0301\u0301", "e\u0301\u0301" + `\u{301}`, `e\u{301}\u{301}\u{301}`},
		{"\u0301", `\u{301}`, `\u{301}`},
		{"❤\ufe0f", `❤\u{fe0f}`, `\u{2764}\u{fe0f}`},
		{"👋🏽", `👋\u{1f3fd}`, `\u{1f44b}\u{1f3fd}`},
		{"\u115f\u3164", `\u{115f}\u{3164}`, `\u{115f}\u{3164}`},
		{"\ue000", `\u{e000}`, `\u{e000}`},
	} {
		if got := clean(c.name, false); got != c.want {
			t.Errorf("%q: %s, want %s", c.name, got, c.want)
		}
		if got := clean(c.name, true); got != c.ascii {
			t.Errorf("%q in ASCII: %s, want %s", c.name, got, c.ascii)
		}
	}
}

// What is cleaned has nothing in it that drives a terminal, and is cut and padded to the column.
func TestCleanedNamesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		ascii := rapid.Bool().Draw(t, "ascii")
		got := clean(name, ascii)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || odd(r) || ascii && r > 0x7e {
				t.Fatalf("%U in %q", r, got)
			}
		}
		// What a cell shows of a name is what it would show of all of it.
		f := &frame{env: newEnv(ascii, false), width: rapid.IntRange(1, 30).Draw(t, "cell")}
		if short, long := cut(f.label(name), f.width, "…"), cut(got, f.width, "…"); short != long {
			t.Fatalf("a cell of %d columns shows %q of %q, want %q", f.width, short, name, long)
		}
		n := rapid.IntRange(0, 60).Draw(t, "columns")
		tail := rapid.SampledFrom([]string{"", "…", "~"}).Draw(t, "tail")
		if w := ansi.StringWidth(cut(got, n, tail)); w > n {
			t.Fatalf("cut to %d columns: %d", n, w)
		}
		padded := pad(got, n, rapid.Bool().Draw(t, "right"), tail)
		if w := width(padded); w != n {
			t.Fatalf("%q padded to %d columns: %d: %q", got, n, w, padded)
		}
	})
}
