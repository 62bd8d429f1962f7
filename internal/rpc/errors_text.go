package rpc

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is the most bytes of an error text that go out. A text is spelt three times as long in an HTTP/2 header at
// worst, and clients with a header limit of 8 KiB must still see it.
const maxText = 1024

const ellipsis = "…"

// boundText makes text fit for a status or a frame: valid UTF-8, control characters escaped, at most maxText bytes.
func boundText(text string) string {
	if len(text) <= maxText && utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		s := string(r) // a bad byte is read as U+FFFD
		if unicode.IsControl(r) {
			s = strings.Trim(strconv.QuoteRune(r), "'")
		}
		if b.Len()+len(s) > maxText-len(ellipsis) {
			b.WriteString(ellipsis)
			break
		}
		b.WriteString(s)
	}
	return b.String()
}
