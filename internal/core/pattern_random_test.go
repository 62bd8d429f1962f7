package core

import (
	"math/rand/v2"
	"strings"
)

// randomTopic makes a legal topic out of few letters, so that patterns have a chance.
func randomTopic(r *rand.Rand) string {
	segments := make([]string, 1+r.IntN(4))
	for i := range segments {
		var b strings.Builder
		for range 1 + r.IntN(4) {
			b.WriteString(pick(r, "a", "a", "b", "b", "c", "-", "é", "漢", "😀", ",", "$", "^"))
		}
		segments[i] = b.String()
	}
	return strings.Join(segments, ".")
}

// randomPattern makes a pattern of all the grammar has, sometimes one that is refused.
func randomPattern(r *rand.Rand) string {
	return randomSegments(r, 1+r.IntN(4), 2)
}

func randomSegments(r *rand.Rand, segments, depth int) string {
	parts := make([]string, segments)
	for i := range parts {
		switch r.IntN(8) {
		case 0:
			parts[i] = "**"
		case 1, 2:
			parts[i] = "*"
		case 3:
			if depth > 0 && r.IntN(2) == 0 {
				parts[i] = randomGroup(r, depth-1)
				continue
			}
			fallthrough
		default:
			parts[i] = randomGlob(r, depth)
		}
	}
	return strings.Join(parts, ".")
}

func randomGlob(r *rand.Rand, depth int) string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		switch r.IntN(12) {
		case 0, 1:
			b.WriteByte('*')
		case 2:
			b.WriteByte('?')
		case 3:
			b.WriteString(pick(r, "[ab]", "[!a]", "[^b]", "[a-c]", "[漢é]", "[-a]", "[a-]", "[!a-b漢]", "[$]", "[^]", "[]a]", "[😀-😂]"))
		case 4:
			if depth > 0 {
				b.WriteString(randomGroup(r, depth-1))
			}
		case 5:
			b.WriteString(pick(r, `\a`, `\*`, `\$`, `\漢`, `\,`, "$"))
		case 6:
			if r.IntN(8) == 0 {
				b.WriteString(pick(r, "[", "]", "{", "}", `\`, "!", "[!]", "[b-a]", "", "**", ".", "[!!a]", `[\a]`))
			}
		default:
			b.WriteString(pick(r, "a", "a", "b", "b", "c", "-", "é", "漢", "😀", ","))
		}
	}
	return b.String()
}

func randomGroup(r *rand.Rand, depth int) string {
	parts := make([]string, 1+r.IntN(3))
	for i := range parts {
		switch r.IntN(6) {
		case 0:
			parts[i] = pick(r, "", "a", "b", "*", "**")
		default:
			parts[i] = randomSegments(r, 1+r.IntN(2), depth)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }
