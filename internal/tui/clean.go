package tui

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// maxMarks is how many combining marks one character may carry; more are noise, and some terminals draw them over
// neighbouring lines.
const maxMarks = 2

// clean makes a name that a stranger chose safe to draw. What could drive the terminal, hide, turn the direction of text
// round, or be drawn in another width than it is measured with becomes \xNN or \u{NN}. With ascii everything beyond
// ASCII does.
func clean(name string, ascii bool) string {
	if plain(name) {
		return name
	}
	var b strings.Builder
	marks := maxMarks // a mark without a character before it would land on what is drawn to its left
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			writeHex(&b, name[i])
			marks = maxMarks
		case r < 0x20 || r == 0x7f:
			writeHex(&b, byte(r))
			marks = maxMarks
		case r >= utf8.RuneSelf && ascii, odd(r):
			writeEscape(&b, r)
			marks = maxMarks
		case unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks > maxMarks {
				writeEscape(&b, r)
				break
			}
			b.WriteString(name[i : i+n])
		default:
			b.WriteString(name[i : i+n])
			marks = 0
		}
		i += n
	}
	return b.String()
}

// plain reports whether there is nothing in s to be changed: the usual case.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// odd reports whether a character is invisible, changes how others are drawn, or has a width that terminals do not agree on.
func odd(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f: // C1 controls
	case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef: // variation selectors
	case r >= 0x1160 && r <= 0x11ff, r >= 0xd7b0 && r <= 0xd7ff: // Hangul vowels and finals that join what is before them
	case r >= 0x1f1e6 && r <= 0x1f1ff, r >= 0x1f3fb && r <= 0x1f3ff: // halves of flags, skin tones
	case r == 0x115f, r == 0x3164, r == 0xffa0: // fillers
	case r == 0x034f, r >= 0x17b4 && r <= 0x17b5, r >= 0x180b && r <= 0x180f: // joiner, inherent vowels, selectors
	case !unicode.IsPrint(r) && !unicode.IsSpace(r) && !unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc): // not assigned
	default:
		return false
	}
	return true
}

func writeHex(b *strings.Builder, c byte) {
	const digits = "0123456789abcdef"
	b.WriteString(`\x`)
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&15])
}

func writeEscape(b *strings.Builder, r rune) {
	b.WriteString(`\u{` + strconv.FormatInt(int64(r), 16) + "}")
}

// width is how many columns s takes at most: character by character, as terminals that know no clusters draw it. The
// others need no more.
func width(s string) int {
	if plain(s) {
		return len(s)
	}
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < utf8.RuneSelf, r >= 0x2500 && r <= 0x259f, r == '…': // what the screen itself is made of
		return 1
	case r >= 0x4e00 && r <= 0x9fff, r >= 0xac00 && r <= 0xd7a3, r >= 0x3041 && r <= 0x3096: // most of what is wide
		return 2
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.Is(unicode.Mc, r):
		return 1
	}
	s := string(r)
	return max(ansi.StringWidth(s), ansi.StringWidthWc(s))
}

// cut shortens s to at most n columns, the last of them tail. A character keeps its marks or goes with them.
func cut(s string, n int, tail string) string {
	s, _ = measuredCut(s, n, tail)
	return s
}

// measuredCut is cut, and tells how wide the result is. It looks no further into s than it has to.
func measuredCut(s string, n int, tail string) (string, int) {
	if n <= 0 {
		return "", 0
	}
	room := n - width(tail)
	if room < 0 {
		tail, room = "", n
	}
	// What fits beside the tail, up to the last character that does with all its marks, and whether that is still open.
	end, endWidth, open := 0, 0, true
	used := 0
	for i, r := range s {
		if open && !unicode.IsMark(r) {
			end, endWidth = i, used
		}
		used += runeWidth(r)
		if used > room {
			open = false
		}
		if used > n {
			return s[:end] + tail, endWidth + width(tail)
		}
	}
	return s, used
}

// pad fills s up to n columns, at its left when right is set. A longer s is cut.
func pad(s string, n int, right bool, tail string) string {
	s, w := measuredCut(s, n, tail)
	spaces := strings.Repeat(" ", max(0, n-w))
	if right {
		return spaces + s
	}
	return s + spaces
}

// padDrawn fills text that was drawn already, escape sequences and all, up to n columns.
func padDrawn(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-width(ansi.Strip(s))))
}
