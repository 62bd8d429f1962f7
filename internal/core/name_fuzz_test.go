package core

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzName holds the names of subscriptions, clients and groups against the rule in other words.
func FuzzName(f *testing.F) {
	for _, name := range []string{"", "a", "a.b", "a b", "a\x00", "\xff", "\ufffd", strings.Repeat("n", MaxNameBytes), strings.Repeat("n", MaxNameBytes+1), "*", "{a}", "\u2028"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		legal := name != "" && len(name) <= MaxNameBytes && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
		err := ValidateName("name", name)
		checkErrorText(t, err)
		if (err == nil) != legal || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("name %q: %v", name, err)
		}
		segment := legal && !strings.ContainsFunc(name, func(r rune) bool { return r == '.' || unicode.IsSpace(r) || strings.ContainsRune(`*?[]{}\!`, r) })
		err = ValidateGroupName(name)
		checkErrorText(t, err)
		if (err == nil) != segment || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("group %q: %v", name, err)
		}
		if err == nil && len(DeadLetterTopic(name)) > MaxTopicBytes {
			t.Errorf("group %q: its dead letters have no legal topic", name)
		}
	})
}
