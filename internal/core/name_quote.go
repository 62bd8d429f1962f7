package core

import (
	"strconv"
	"unicode/utf8"
)

// maxQuoted bounds what an error text shows of a name that came from outside.
const maxQuoted = 80

// quoteShort returns s in double quotes, with everything unprintable escaped and cut off after maxQuoted bytes of
// output, which an ellipsis behind the quotes tells.
func quoteShort(s string) string {
	quoted := make([]byte, 0, maxQuoted+len(`"\U0010ffff"…`))
	quoted = append(quoted, '"')
	for i := 0; i < len(s); {
		_, size := utf8.DecodeRuneInString(s[i:])
		before := len(quoted)
		piece := strconv.AppendQuote(quoted, s[i:i+size])
		// AppendQuote puts quotes around the one character.
		quoted = append(quoted, piece[before+1:len(piece)-1]...)
		if len(quoted) > maxQuoted {
			return string(quoted[:before]) + `"…`
		}
		i += size
	}
	return string(append(quoted, '"'))
}
