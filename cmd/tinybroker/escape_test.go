package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestSafe(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "hello, wörld ✓", "hello, wörld ✓"},
		{"line end, tab, return", "a\nb\tc\r", `a\nb\tc\r`},
		{"clear the screen", "\x1b[2J", `\x1b[2J`},
		{"set the clipboard", "\x1b]52;c;aGk=\a", `\x1b]52;c;aGk=\x07`},
		{"C1 as a character", "\u009b2J", `\u{9b}2J`},
		{"C1 as a byte", "\x9b2J", `\x9b2J`},
		{"delete", "\x7f", `\x7f`},
		{"zero", "\x00", `\x00`},
		{"override", "a\u202eb", `a\u{202e}b`},
		{"isolate", "a\u2066b", `a\u{2066}b`},
		{"marks", "\u200e\u200f\u061c", `\u{200e}\u{200f}\u{61c}`},
		{"line separator", "a\u2028b", `a\u{2028}b`},
		{"tag", "a\U000e0041b", `a\u{e0041}b`},
		{"not UTF-8", "a\xffb\xc3", `a\xffb\xc3`},
		{"replacement character", "\ufffd", "\ufffd"},
		{"backslash alone", `C:\dir\`, `C:\dir\`},
		{"backslash that would read as an escape", `C:\new \x1b \\`, `C:\\new \\x1b \\\`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := safe(c.in); got != c.want {
				t.Errorf("safe(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain":            "plain",
		"two\nlines\n":     "two lines",
		`C:\new`:           `C:\new`,
		"\x1b[31mred":      `\x1b[31mred`,
		"bad \xff byte":    "bad \ufffd byte",
		"evil\u202egnp.sh": `evil\u{202e}gnp.sh`,
	} {
		if got := oneLine(in); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

// unescape is the reverse of appendSafe, written without looking at it.
func unescape(t *rapid.T, s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) || !strings.ContainsRune(`ntrxu\`, rune(s[i+1])) {
			out = append(out, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case '\\':
			out = append(out, '\\')
		case 'x':
			out = append(out, byte(hexNumber(t, s[i+1:i+3])))
			i += 2
		case 'u':
			end := i + strings.IndexByte(s[i:], '}')
			out = utf8.AppendRune(out, rune(hexNumber(t, s[i+2:end])))
			i = end
		}
	}
	return string(out)
}

func hexNumber(t *rapid.T, s string) int {
	n := 0
	for _, c := range s {
		d := strings.IndexRune(hexDigits, c)
		if d < 0 {
			t.Fatalf("%q is not hexadecimal", s)
		}
		n = n<<4 | d
	}
	return n
}

// What is shown can be told back to what was sent, and holds nothing that drives a terminal.
func TestSafeIsReversible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.String(),
			rapid.StringOf(rapid.SampledFrom([]rune("\\ntrxu{}0aé\n\x1b\u0085\u202e"))),
		).Draw(t, "text")
		shown := safe(in)
		if strings.IndexFunc(shown, hostile) >= 0 || !utf8.ValidString(shown) {
			t.Fatalf("safe(%q) = %q is not safe", in, shown)
		}
		if got := unescape(t, shown); got != in {
			t.Fatalf("safe(%q) = %q, which reads as %q", in, shown, got)
		}
	})
}
