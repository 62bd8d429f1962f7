package core

import (
	"strings"
	"testing"
)

func BenchmarkPatternMatch(b *testing.B) {
	for _, c := range []struct{ name, pattern, topic string }{
		{"literal", "orders.eu.created", "orders.eu.created"},
		{"star", "orders.*.created", "orders.eu.created"},
		{"doublestar", "orders.**", "orders.eu.created"},
		{"glob", "orders.e?.cr*d", "orders.eu.created"},
		{"class", "orders.[a-z][!0-9].created", "orders.eu.created"},
		{"braces", "orders.{us,uk,eu}.{created,changed}", "orders.eu.changed"},
		{"hostile-star", "*a*a*a*a*b", strings.Repeat("a", MaxTopicBytes)},
		{"hostile-run", "*" + strings.Repeat("a", 200) + "?b", strings.Repeat("a", MaxTopicBytes)},
		{"hostile-doublestar", "**.a.**.a.**.a.**.b", strings.Repeat("a.", MaxTopicSegments-1) + "a"},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, err := ParsePattern(c.pattern)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Match(c.topic)
			}
		})
	}
}

func BenchmarkParsePattern(b *testing.B) {
	for _, c := range []struct{ name, pattern string }{
		{"literal", "orders.eu.created"},
		{"wildcards", "orders.*.cr*d.**"},
		{"braces", "orders.{us,uk,eu}.{created,changed}"},
		{"refused", strings.Repeat("{a,b}", 30)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = ParsePattern(c.pattern)
			}
		})
	}
}
