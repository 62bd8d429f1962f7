package auth

import (
	"strings"
	"testing"
)

// FuzzParse: whatever the file, it is taken or refused line by line, and no secret that it holds by mistake is told.
func FuzzParse(f *testing.F) {
	const secret = "tb_S3CR3T"
	for _, text := range []string{
		"", "identities: []", "identities:\n  - name: a\n    tokens: [x]\n", "identities:\n  - name: a\n    tokens: [" + HashToken(NewToken()) + "]\n    publish: {allow: ['a.**'], deny: [a.b]}\n",
		"identities:\n  - &x {name: a, tokens: *x}\n", "identities:\n  - name: a\n    tokens: [" + secret + "]\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ids, err := Parse("auth.yaml", text)
		if err == nil {
			if ids == nil || len(ids.all) == 0 {
				t.Error("neither identities nor an error")
			}
			return
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, "auth.yaml") {
				t.Errorf("refused with the line %q", line)
			}
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells the token: %v", err)
		}
	})
}
