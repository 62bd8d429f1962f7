package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// truths are patterns with topics they match and topics they do not. The same table holds for a pattern alone, for a set
// and for the index.
var truths = []struct{ pattern, matches, others string }{
	{"a.b", "a.b", "a ab a.b.c A.b a.B b.a"},
	{"a.*", "a.b a.é a.bcd", "a a.b.c ab ax.b"},
	{"a.**", "a a.b a.b.c", "ab ab.c b.a"},
	{"**.c", "c a.c a.b.c c.c", "abc a.bc c.a"},
	{"a.**.d", "a.d a.b.d a.b.c.d a.d.d", "ad a.bd a.b.c a.d.e d.a"},
	{"**", "a a.b a.b.c", ""},
	{"*", "a abc é", "a.b"},
	{"**.*", "a a.b a.b.c", ""},
	{"*.**", "a a.b a.b.c", ""},
	{"*.*", "a.b", "a a.b.c"},
	{"**.**", "a a.b a.b.c", ""},
	{"**.a.**", "a a.b b.a b.a.b", "b b.b ab"},
	{"**.a.**.a.**", "a.a a.b.a b.a.b.a.b", "a b.a.b"},
	{"a.**.b.**.c", "a.b.c a.x.b.c a.b.x.c a.b.b.c a.c.b.c", "a.c a.b a.c.b a.b.c.d"},
	{"a*c", "ac abc abbc acc", "a.c a.bc ab bc"},
	{"a.b*.c", "a.b.c a.bx.c", "a.b.x.c a.c"},
	{"*a*a*b", "aab xaxaxb aaab", "ab aa aaba"},
	{"*ab*", "ab xabx aab", "a b ba"},
	{"a?c", "abc aéc a漢c a😀c", "ac abbc a.c"},
	{"a.?.c", "a.b.c a.漢.c", "a.bb.c a.c"},
	{"*?", "a ab", "a.b"},
	{"?*?", "ab abc éé", "a"},
	{"a.[bc].d", "a.b.d a.c.d", "a.e.d a.bc.d a.d"},
	{"[a-c]", "a b c", "d A ab -"},
	{"[!a-c]", "d é -", "a b c dd"},
	{"[^a]", "b ^", "a"},
	{"[a^]", "a ^", "b"},
	{"[-a]", "- a", "b"},
	{"[a-]", "- a", "b"},
	{"[a-c-e]", "a b c - e", "d"},
	{"[]a]", "a", "b"},
	{"[漢é]", "漢 é", "e 字"},
	{"[!漢]", "字 a", "漢"},
	{"[à-ÿ]x", "éx", "ex"},
	{"*[ab]*", "a xb ax", "x"},
	{"a.{b,c.d}.e", "a.b.e a.c.d.e", "a.c.e a.b.d.e"},
	{"{*.mid.*,left.*}", "x.mid.y left.x", "x.mid left mid.x"},
	{"a{,b}", "a ab", "b abb"},
	{"a{b,{c,d}e}f", "abf acef adef", "aef abef"},
	{"{a,b}{c,d}", "ac ad bc bd", "ab cd a"},
	{"{**,a}.b", "b a.b x.y.b", "a"},
	{"{*,a}*", "a b a.b", ""},
	{"a{*,?}c", "ac abc abbc", "ab"},
	{"{a,a}", "a", "b"},
	{"a{}", "a", "b"},
	{"{a.b,}c", "a.bc c", "a.b"},
	{"[{a,b}]", "a b", "ab c"},
	{"a,b", "a,b", "a b"},
	{`{a\,b,c}`, "a,b c", "a b"},
	{`a\bc`, "abc", "ab"},
	{`a\漢`, "a漢", "a"},
	{`a.\*`, "", "a.b a"},
	{`\!a`, "", "a b"},
	{"a.secret.*", "a.secret.x", "a.secret a.secrets.x"},
	{"a.?ecret.**", "a.secret.x a.secret", "a.ecret"},
	{"$tb.**", "$tb $tb.event.x", "a tb $t"},
	{"$tb.*", "$tb.x", "$tb a.x"},
	{"$t*.x", "$tb.x $t.x", "$b.x t.x"},
	{`\$tb.x`, "$tb.x", "tb.x"},
	{"$*", "$tb $", "a"},
	{"{$tb,a}.x", "$tb.x a.x", "b.x"},
	{"{,$}tb", "tb $tb", "a"},
	{"**", "", "$tb $tb.event.x $"},
	{"*.**", "", "$tb $tb.event.x"},
	{"*", "", "$tb $"},
	{"?tb.x", "atb.x", "$tb.x"},
	{"[$]tb.x", "", "$tb.x"},
	{"[$a]tb.x", "atb.x", "$tb.x"},
	{"[!a]tb.x", "btb.x", "$tb.x"},
	{"*tb.x", "tb.x", "$tb.x"},
	{"*$tb.x", "a$tb.x", "$tb.x"},
	{"**.$tb.x", "a.$tb.x", "$tb.x"},
	{"{*,x}tb.x", "tb.x xtb.x", "$tb.x"},
	{"a.$b", "a.$b", "a.b"},
	{"a.*", "a.$b", "$a.b"},
}

func TestPatternTruths(t *testing.T) {
	for _, c := range truths {
		set, err := ParsePatterns([]string{c.pattern})
		if err != nil {
			t.Error(err)
			continue
		}
		var ix index[string]
		ix.add(set, "it")
		check := func(topic string, want bool) {
			t.Helper()
			if got := set.patterns[0].Match(topic); got != want {
				t.Errorf("pattern %q matches %q: %v", c.pattern, topic, got)
			}
			if got := set.Match(topic); got != want {
				t.Errorf("set of %q matches %q: %v", c.pattern, topic, got)
			}
			if got := len(ix.match(topic, nil)) == 1; got != want {
				t.Errorf("index finds %q for %q: %v", c.pattern, topic, got)
			}
		}
		for topic := range strings.FieldsSeq(c.matches) {
			check(topic, true)
		}
		for topic := range strings.FieldsSeq(c.others) {
			check(topic, false)
		}
	}
}

func TestParsePatternRefuses(t *testing.T) {
	many := strings.Repeat
	for _, c := range []struct{ pattern, why string }{
		{"", "a segment is empty"},
		{"!", "a segment is empty"},
		{".", "a segment is empty"},
		{"..", "a segment is empty"},
		{"a.", "a segment is empty"},
		{".a", "a segment is empty"},
		{"a..b", "a segment is empty"},
		{"a.{,b}", "a segment is empty"},
		{"{,b}.a", "a segment is empty"},
		{"{}", "a segment is empty"},
		{"{a.,b}", "a segment is empty"},
		{"[", "a [ is not closed"},
		{"a.[", "a [ is not closed"},
		{"[]", "a [ is not closed"},
		{"[a", "a [ is not closed"},
		{"[a.b]", "a [ is not closed"},
		{"{[,]}", "a [ is not closed"},
		{"[!]", "a class names no character"},
		{"[^]", "a class names no character"},
		{"[!]a]", "a class names no character"},
		{"[z-a]", "a range in a class runs backwards"},
		{"[é-a]", "a range in a class runs backwards"},
		{"[!!a]", "more than one ! or ^"},
		{"[^!a]", "more than one ! or ^"},
		{`[\]]`, `a class cannot hold a \`},
		{`[\a]`, `a class cannot hold a \`},
		{"a]", "a ] that ends no class"},
		{"]", "a ] that ends no class"},
		{"[a]]", "a ] that ends no class"},
		{"{a", "a { is not closed"},
		{"{a,{b", "a { is not closed"},
		{"{a{*.x{", "a { is not closed"},
		{`{a\}`, "a { is not closed"},
		{"[{]", "a { is not closed"},
		{"a}", "a } without {"},
		{"{a}b}", "a } without {"},
		{`\`, `a \ must be followed`},
		{`a.\`, `a \ must be followed`},
		{`a\.b`, `a \ must be followed`},
		{`{a,b\\\}`, "a { is not closed"},
		{"a!b", "a ! that is not the first character"},
		{"!!a", "a ! that is not the first character"},
		{"{!a,b}", "a ! that is not the first character"},
		{"***", "** must be a whole segment"},
		{"a.***", "** must be a whole segment"},
		{"a**b", "** must be a whole segment"},
		{"**a", "** must be a whole segment"},
		{"a.b**", "** must be a whole segment"},
		{"{*,a}*b", "** must be a whole segment"},
		{"a b", "white space at byte 2"},
		{`a\ b`, "white space at byte 3"},
		{"[ ]", "white space at byte 2"},
		{"a\u2028", "white space at byte 2"},
		{"a\n", "control character at byte 2"},
		{"a\u0085", "control character at byte 2"},
		{"\xff\xfe", "invalid UTF-8 at byte 1"},
		{"a[\xff]", "invalid UTF-8 at byte 3"},
		{many("{", 10_000), "10000 bytes, the most is 1024"},
		{many("{", 1000), "a { is not closed"},
		{many("a", 1025), "1025 bytes, the most is 1024"},
		{many("{a,b}", 7), "too many alternatives after brace expansion, the most is 64"},
		{many("{a,b}", 30), "too many alternatives after brace expansion, the most is 64"},
		{"{" + many("a,", 64) + "a}", "too many alternatives after brace expansion, the most is 64"},
		{"{" + many("{a,b}", 7) + ",c}", "too many alternatives after brace expansion, the most is 64"},
		{many("{", 250) + "a" + many(",b}", 250), "too many alternatives after brace expansion, the most is 64"},
		{many("a.", 32) + "a", "33 segments, the most is 32"},
		{"{a,b}." + many("a.", 31) + "a", "33 segments, the most is 32"},
		{many("?", 65), "65 wildcards, the most is 64"},
		{many("[a]", 65), "65 wildcards, the most is 64"},
		{many("a*", 65), "65 wildcards, the most is 64"},
		{many("*?", 33), "66 wildcards, the most is 64"},
		{many("**.a.", 8) + "**", "** 9 times, the most is 8"},
		{many("**.", 8) + "**", "** 9 times, the most is 8"},
	} {
		p, err := ParsePattern(c.pattern)
		if p != nil || !errors.Is(err, ErrPatternInvalid) {
			t.Errorf("%.60q was not refused: %v", c.pattern, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, c.why) || !strings.Contains(text, quoteShort(c.pattern)) {
			t.Errorf("%.60q: %v, want %q and the pattern", c.pattern, err, c.why)
		}
		checkErrorText(t, err)
		if _, err := ParsePatterns([]string{"good", c.pattern}); !errors.Is(err, ErrPatternInvalid) {
			t.Errorf("%.60q beside a good one was not refused: %v", c.pattern, err)
		}
	}
}

func TestParsePatternAtItsCaps(t *testing.T) {
	for _, pattern := range []string{
		strings.Repeat("a", MaxPatternBytes),
		strings.Repeat("{a,b}", 6),
		"{" + strings.Repeat("a,", MaxPatternAlternatives-1) + "a}",
		strings.Repeat("*.", MaxPatternSegments-1) + "*",
		strings.Repeat("?", MaxPatternWildcards),
		strings.Repeat("**.a.", MaxPatternDoubleStars-1) + "**",
		strings.Repeat("{", 500) + "a" + strings.Repeat("}", 500),
	} {
		if _, err := ParsePattern(pattern); err != nil {
			t.Errorf("%.60q: %v", pattern, err)
		}
	}
}

func TestHostileExpansionIsCheap(t *testing.T) {
	for _, pattern := range []string{
		strings.Repeat("{", MaxPatternBytes),
		strings.Repeat("{a,b}", 30),
		strings.Repeat("{,", 500),
		"{" + strings.Repeat("{a,b}", 200) + "}",
		strings.Repeat("{", 250) + "a" + strings.Repeat(",b}", 250),
		strings.Repeat("{a,b}", 6) + strings.Repeat("a", 900) + "}",
	} {
		const times = 10
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			if _, err := ParsePattern(pattern); err == nil {
				t.Errorf("%.40q was not refused", pattern)
			}
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) / times; n > 256<<10 {
			t.Errorf("%.40q took %d bytes to refuse", pattern, n)
		}
	}
}

func TestParsePatterns(t *testing.T) {
	texts := []string{"orders.**", "!orders.internal.**", "orders.**", "b"}
	set, err := ParsePatterns(texts)
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Strings(); !slices.Equal(got, texts) {
		t.Errorf("Strings: %q", got)
	}
	set.Strings()[0] = "changed"
	texts[0] = "changed"
	if got := set.Strings()[0]; got != "orders.**" {
		t.Errorf("a caller changed the set: %q", got)
	}
	if len(set.includes) != 2 || len(set.excludes) != 1 {
		t.Errorf("%d and %d alternatives, want 2 and 1", len(set.includes), len(set.excludes))
	}
	for topic, want := range map[string]bool{
		"orders": true, "orders.eu": true, "orders.internal": false, "orders.internal.audit": false, "b": true, "a": false,
	} {
		if got := set.Match(topic); got != want {
			t.Errorf("%q: %v", topic, got)
		}
	}
	if set.patterns[0].exclusion || !set.patterns[1].exclusion || set.patterns[1].String() != "!orders.internal.**" {
		t.Error("exclusions are mixed up")
	}
	if !set.patterns[1].Match("orders.internal") {
		t.Error("an exclusion does not match what it excludes")
	}
}

func TestEqualAlternativesAreOne(t *testing.T) {
	for pattern, want := range map[string]int{"{a,a}": 1, `{a,\a}`: 1, "{*,*}.b": 1, "{a,b}{c,c}": 2, `{\*,*}`: 2} {
		if got := len(mustParse(t, pattern).includes); got != want {
			t.Errorf("%q: %d, want %d", pattern, got, want)
		}
	}
}

func TestExclusionsFollowTheRuleForBrokerTopics(t *testing.T) {
	set, err := ParsePatterns([]string{"$tb.**", "a", "!**"})
	if err != nil {
		t.Fatal(err)
	}
	if !set.Match("$tb.event.x") {
		t.Error("!** excludes a topic of the broker")
	}
	if set.Match("a") {
		t.Error("!** does not exclude a")
	}
}

func TestParsePatternsRefuses(t *testing.T) {
	numbered := func(n int, format string) []string {
		s := make([]string, n)
		for i := range s {
			s[i] = fmt.Sprintf(format, i)
		}
		return s
	}
	for _, c := range []struct {
		name     string
		patterns []string
		why      string
	}{
		{"none", nil, "at least one is needed"},
		{"exclusions alone", []string{"!a", "!b"}, `"!a": exclusions alone`},
		{"one bad", []string{"a", "b..c", "["}, `"b..c"`},
		{"too many", numbered(257, "a.%d"), `"a.256": with it the subscription has 257 patterns`},
		{"far too many", numbered(100_000, "a.%d"), "the most is 256"},
		{"too many by braces", numbered(65, "a.%d.{a,b,c,d}"), `"a.64.{a,b,c,d}": with it the subscription has 260 patterns`},
		{"too many bytes", numbered(65, "a"+strings.Repeat("b", 1014)+"%d"), "bytes after brace expansion, the most is 65536"},
		{"too many wildcards", numbered(17, "%d"+strings.Repeat("?", 61)), "wildcards after brace expansion, the most is 1024"},
	} {
		_, err := ParsePatterns(c.patterns)
		if !errors.Is(err, ErrPatternInvalid) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", c.name, err, c.why)
		}
		checkErrorText(t, err)
	}
	if _, err := ParsePatterns(numbered(MaxSetPatterns, "a.%d")); err != nil {
		t.Errorf("at the cap: %v", err)
	}
}

func TestPatternAgreesWithSlowMatcher(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	refused, matched := 0, 0
	const pairs = 200_000
	for range pairs {
		pattern, topic := randomPattern(r), randomTopic(r)
		want, slowErr := slowMatch(pattern, topic)
		p, err := ParsePattern(pattern)
		if capped(err) {
			continue
		}
		if (err != nil) != (slowErr != nil) {
			t.Fatalf("pattern %q: %v, want %v", pattern, err, slowErr)
		}
		if err != nil {
			refused++
			continue
		}
		if got := p.Match(topic); got != want {
			t.Fatalf("%q matches %q: %v, want %v", pattern, topic, got, want)
		}
		if want {
			matched++
		}
	}
	if refused < pairs/10 || refused > pairs/3 || matched < pairs/20 {
		t.Errorf("poor sample: %d refused, %d matched", refused, matched)
	}
}

// capped reports whether a pattern was refused for a cap, which the slow matcher does not know.
func capped(err error) bool {
	return err != nil && strings.Contains(err.Error(), "the most is")
}
