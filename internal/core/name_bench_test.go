package core

import (
	"strings"
	"testing"
)

func BenchmarkValidateTopic(b *testing.B) {
	for _, c := range []struct{ name, topic string }{
		{"short", "orders.eu.created"},
		{"long", strings.Repeat("segment-of-16-b.", 31) + "last"},
		{"wide", strings.Repeat("日本語.", 10) + "最後"},
	} {
		b.Run(c.name, func(b *testing.B) {
			topic := []byte(c.topic)
			b.SetBytes(int64(len(topic)))
			b.ReportAllocs()
			for b.Loop() {
				if err := ValidateTopic(topic); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
