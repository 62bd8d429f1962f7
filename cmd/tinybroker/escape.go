package main

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// hostile reports whether a character could drive the terminal or mislead the eye: control characters (C0, DEL, C1),
// the marks that change the direction of text, and the separators that some terminals take for a line end.
func hostile(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // embeddings, overrides, isolates
		return true
	case r == 0x200e, r == 0x200f, r == 0x061c: // direction marks
		return true
	case r == 0x2028, r == 0x2029:
		return true
	}
	return unicode.Is(unicode.Cf, r) && r >= 0xe0000 // tags: invisible text
}

// appendSafe appends text with everything hostile escaped as \n, \t, \xNN or \u{NN}, so that it takes one line and
// moves nothing on a terminal. A byte that is not UTF-8 becomes \xNN. A backslash of the text is doubled only where
// it would read as one of these escapes, so that what is shown has one meaning.
func appendSafe(dst, text []byte) []byte {
	for len(text) > 0 {
		if c := text[0]; c < utf8.RuneSelf {
			dst = appendSafeASCII(dst, c, text[1:])
			text = text[1:]
			continue
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = appendHexByte(dst, text[0])
		case hostile(r):
			dst = appendRuneEscape(dst, r)
		default:
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}

func appendSafeASCII(dst []byte, c byte, rest []byte) []byte {
	switch {
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\t':
		return append(dst, '\\', 't')
	case c == '\r':
		return append(dst, '\\', 'r')
	case c < 0x20 || c == 0x7f:
		return appendHexByte(dst, c)
	case c == '\\' && len(rest) > 0 && beginsEscape(rest[0]):
		return append(dst, '\\', '\\')
	}
	return append(dst, c)
}

// beginsEscape reports whether a backslash before c would, in what is shown, read as the beginning of an escape: c is
// a letter of one, or will be shown as one.
func beginsEscape(c byte) bool {
	return strings.IndexByte(`ntrxu\`, c) >= 0 || c < 0x20 || c >= 0x7f
}

func appendHexByte(dst []byte, c byte) []byte {
	return append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
}

func appendRuneEscape(dst []byte, r rune) []byte {
	dst = append(dst, '\\', 'u', '{')
	started := false
	for shift := 20; shift >= 0; shift -= 4 {
		d := r >> shift & 15
		if d != 0 || started || shift == 0 {
			dst = append(dst, hexDigits[d])
			started = true
		}
	}
	return append(dst, '}')
}

// appendSafeLines is appendSafe for text of several lines: line ends and tabs stay.
func appendSafeLines(dst, text []byte) []byte {
	text = bytes.Clone(text)
	for len(text) > 0 {
		i := bytes.IndexAny(text, "\n\t")
		if i < 0 {
			return appendSafe(dst, text)
		}
		dst = append(appendSafe(dst, text[:i]), text[i])
		text = text[i+1:]
	}
	return dst
}

// safe is appendSafe for strings.
func safe(text string) string { return string(appendSafe(nil, []byte(text))) }

// oneLine makes a text for people safe to print on one line: what is hostile is escaped, line ends become spaces.
// Backslashes, which are common in error texts, stay as they are.
func oneLine(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "\ufffd")
	if strings.IndexFunc(text, hostile) < 0 {
		return text
	}
	var b []byte
	for _, r := range text {
		switch {
		case r == '\n':
			b = append(b, ' ')
		case hostile(r):
			b = appendSafe(b, []byte(string(r)))
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}
