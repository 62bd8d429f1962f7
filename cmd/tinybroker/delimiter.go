package main

import (
	"fmt"
	"strconv"
)

// parseDelimiter reads \n, \r, \t, \0, \\ and \xNN in a delimiter given on the command line.
func parseDelimiter(s string) (string, error) {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		i++
		if i == len(s) {
			return "", fmt.Errorf("%q ends in the middle of an escape", s)
		}
		switch s[i] {
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case '0':
			out = append(out, 0)
		case '\\':
			out = append(out, '\\')
		case 'x':
			b, err := strconv.ParseUint(s[min(i+1, len(s)):min(i+3, len(s))], 16, 8)
			if err != nil || i+3 > len(s) {
				return "", fmt.Errorf(`%q: \x needs two hexadecimal digits`, s)
			}
			out = append(out, byte(b))
			i += 2
		default:
			return "", fmt.Errorf(`%q: unknown escape \%c; known are \n \r \t \0 \\ \xNN`, s, s[i])
		}
	}
	return string(out), nil
}
