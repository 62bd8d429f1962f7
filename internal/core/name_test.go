package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestValidateTopic(t *testing.T) {
	for _, topic := range []string{
		"a", "a.b", "orders.eu.created", "A.b", "a-b_c/d:e@f#g", "a.$b", "a$", "a,b", "^", "~", `"quoted"`,
		"é.漢字.😀", "\u200b", "\ufffd", "\u00a1", "a\u0301",
		strings.Repeat("a", MaxTopicBytes), strings.Repeat("a.", MaxTopicSegments-1) + "a",
	} {
		if err := ValidateTopic([]byte(topic)); err != nil {
			t.Errorf("%.40q: %v", topic, err)
		}
	}
}

func TestValidateTopicRefuses(t *testing.T) {
	for _, c := range []struct{ topic, why string }{
		{"", "it is empty"},
		{".", "segment 1 is empty"},
		{"..", "segment 1 is empty"},
		{".a", "segment 1 is empty"},
		{"a.", "segment 2 is empty"},
		{"a..b", "segment 2 is empty"},
		{"é.漢.", "segment 3 is empty"},
		{"a b", "white space at byte 2"},
		{" ", "white space at byte 1"},
		{"a\tb", "control character at byte 2"},
		{"a\nb", "control character at byte 2"},
		{"a\x00", "control character at byte 2"},
		{"a\x7f", "control character at byte 2"},
		{"é\u0080", "control character at byte 3"},
		{"a\u0085", "control character at byte 2"},
		{"a\u009f", "control character at byte 2"},
		{"a\u00a0", "white space at byte 2"},
		{"a\u1680", "white space at byte 2"},
		{"a\u2003b", "white space at byte 2"},
		{"a\u2028", "white space at byte 2"},
		{"a\u2029", "white space at byte 2"},
		{"a\u3000", "white space at byte 2"},
		{"a.*", `character '*' at byte 3`},
		{"a.**", `character '*' at byte 3`},
		{"a?b", `character '?' at byte 2`},
		{"{a}", `character '{' at byte 1`},
		{"a}", `character '}' at byte 2`},
		{"[a", `character '[' at byte 1`},
		{"a]", `character ']' at byte 2`},
		{`a\b`, `character '\\' at byte 2`},
		{"!a", `character '!' at byte 1`},
		{"$", "belong to the broker"},
		{"$tb.event.x", "belong to the broker"},
		{"\xff\xfe", "invalid UTF-8 at byte 1"},
		{"a\xe6\xbc", "invalid UTF-8 at byte 2"},
		{"a.\xed\xa0\x80", "invalid UTF-8 at byte 3"}, // half of a surrogate pair
		{"\xc0\xaf", "invalid UTF-8 at byte 1"},       // an overlong slash
		{strings.Repeat("a", MaxTopicBytes+1), "513 bytes, the most is 512"},
		{strings.Repeat("é", 257), "514 bytes, the most is 512"},
		{strings.Repeat("a.", MaxTopicSegments) + "a", "33 segments, the most is 32"},
	} {
		err := ValidateTopic([]byte(c.topic))
		if !errors.Is(err, ErrTopicInvalid) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%.40q: %v, want %q", c.topic, err, c.why)
		}
	}
}

func TestValidateTopicLengths(t *testing.T) {
	lengths := slices.Concat([]int{127, 128, 129, 255, 256, 257, 511, 512}, ascending(1, 70))
	for _, letter := range []string{"a", "é", "漢", "😀"} {
		for _, n := range lengths {
			// ASCII first, so that the wide letters straddle every boundary.
			for lead := range len(letter) {
				topic := strings.Repeat("x", lead) + strings.Repeat(letter, n/len(letter))
				if len(topic) == 0 || len(topic) > MaxTopicBytes {
					continue
				}
				if err := ValidateTopic([]byte(topic)); err != nil {
					t.Errorf("%d bytes of %s behind %d: %v", len(topic), letter, lead, err)
				}
			}
		}
	}
	for n := 1; n <= MaxTopicSegments; n++ {
		if err := ValidateTopic([]byte(strings.Repeat("é.", n-1) + "é")); err != nil {
			t.Errorf("%d segments: %v", n, err)
		}
	}
}

func ascending(from, to int) []int {
	var s []int
	for i := from; i <= to; i++ {
		s = append(s, i)
	}
	return s
}

func TestValidateTopicEveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		topic := fmt.Sprintf("a%cb", r)
		want := slowTopicValid(topic)
		if got := ValidateTopic([]byte(topic)) == nil; utf8.ValidRune(r) && got != want {
			t.Errorf("%U: %v, want %v", r, got, want)
		}
	}
}

// slowTopicValid is the rule for topics, word by word.
func slowTopicValid(topic string) bool {
	if !utf8.ValidString(topic) || len(topic) < 1 || len(topic) > 512 || topic[0] == '$' {
		return false
	}
	segments := strings.Split(topic, ".")
	return len(segments) <= 32 && !slices.Contains(segments, "") && !strings.ContainsAny(topic, `*?[]{}\!`) &&
		!strings.ContainsFunc(topic, unicode.IsSpace) && !strings.ContainsFunc(topic, unicode.IsControl)
}

func TestValidateTopicAllocatesNothing(t *testing.T) {
	for _, topic := range []string{"orders.eu.created", "注文.作成", strings.Repeat("a.", 31) + "a"} {
		name := []byte(topic)
		if n := testing.AllocsPerRun(100, func() { _ = ValidateTopic(name) }); n > 0 {
			t.Errorf("%q: %v allocations", topic, n)
		}
	}
}

func TestValidateName(t *testing.T) {
	for _, name := range []string{"a", "web-1", "with space", "a.b", "*", "漢字", "\ufffd", "😀", strings.Repeat("a", MaxNameBytes)} {
		if err := ValidateName("client name", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, c := range []struct{ name, why string }{
		{"", "it is empty"},
		{strings.Repeat("a", MaxNameBytes+1), "129 bytes, the most is 128"},
		{"a\x00", "control character at byte 2"},
		{"a\nb", "control character at byte 2"},
		{"a\x1b[2J", "control character at byte 2"},
		{"é\u0085", "control character at byte 3"},
		{"\xff\xfe", "invalid UTF-8 at byte 1"},
		{"a\xe6\xbc", "invalid UTF-8 at byte 2"},
	} {
		err := ValidateName("client name", c.name)
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "client name") || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %v, want %q", c.name, err, c.why)
		}
	}
}

func TestValidateGroupName(t *testing.T) {
	for _, name := range []string{"workers", "a-b_c", "漢字", "$", strings.Repeat("a", MaxNameBytes)} {
		if err := ValidateGroupName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if topic := "x." + name; ValidateTopic([]byte(topic)) != nil {
			t.Errorf("%q cannot end a topic", name)
		}
	}
	for _, name := range []string{"", "a.b", ".", "a b", "a\u3000b", "a*", "a?", "[a]", "{a}", `a\`, "!a", "a\x00", "\xff", strings.Repeat("a", 129)} {
		if err := ValidateGroupName(name); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestErrorTextsAreShort(t *testing.T) {
	for _, unit := range []string{"a", " ", "\xff", "\x00", "漢", "\U0010ffff", "\u202e", "a.", "{", "[", "*", "{a,b}", "**.", "[!a]", `\`, "!"} {
		for _, n := range []int{1, 20, 100, 10_000} {
			s := strings.Repeat(unit, n)
			_, errPattern := ParsePattern(s)
			_, errPatterns := ParsePatterns(slices.Repeat([]string{s}, 300))
			for _, err := range []error{
				ValidateTopic([]byte(s)), ValidateName("subscription id", s), ValidateGroupName(s), errPattern, errPatterns,
			} {
				checkErrorText(t, err)
			}
		}
	}
}

// checkErrorText fails if the text of err, which may be nil, is long or could do harm in a terminal.
func checkErrorText(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	if len(text) >= 256 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("error text of %d bytes: %q", len(text), text)
	}
}

func TestQuoteShort(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"", `""`},
		{`a"b\`, `"a\"b\\"`},
		{"é\x00\xff\u202e", `"é\x00\xff\u202e"`},
		{strings.Repeat("a", 79), `"` + strings.Repeat("a", 79) + `"`},
		{strings.Repeat("a", 80), `"` + strings.Repeat("a", 79) + `"…`},
		{strings.Repeat("漢", 80), `"` + strings.Repeat("漢", 26) + `"…`},
	} {
		if got := quoteShort(c.name); got != c.want {
			t.Errorf("%q: got %s, want %s", c.name, got, c.want)
		}
	}
}

func FuzzTopic(f *testing.F) {
	for _, topic := range []string{"a", "orders.eu.created", "a..b", "$tb.x", "é.漢", "a b", "a\u0085", "\xff", "a.*"} {
		f.Add([]byte(topic))
	}
	f.Fuzz(func(t *testing.T, topic []byte) {
		before := string(topic)
		err := ValidateTopic(topic)
		if (err == nil) != slowTopicValid(before) {
			t.Errorf("%q: %v", before, err)
		}
		if err != nil && !errors.Is(err, ErrTopicInvalid) {
			t.Errorf("%q: %v is no topic error", before, err)
		}
		checkErrorText(t, err)
		if string(topic) != before {
			t.Errorf("%q was changed", before)
		}
		if err == nil {
			p, err := ParsePattern(before)
			if err != nil || !p.Match(before) {
				t.Errorf("%q does not match itself: %v", before, err)
			}
		}
	})
}
