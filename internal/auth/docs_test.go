package auth

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The auth file on the page about security is one, once its hashes are whole.
func TestDocumentedAuthFile(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "```yaml by=TestDocumentedAuthFile\n")
	text, _, _ = strings.Cut(text, "```")
	text = regexp.MustCompile(`sha256:([0-9a-f]{6})\.\.\.`).ReplaceAllStringFunc(text, HashToken)
	ids, err := Parse("security.md", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(ids.all) != 2 {
		t.Errorf("%d identities", len(ids.all))
	}
}
