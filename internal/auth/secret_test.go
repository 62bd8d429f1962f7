//go:build unix

package auth

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestNewToken(t *testing.T) {
	form := regexp.MustCompile(`^tb_[A-Za-z0-9_-]{43}$`) // 43 characters of six bits hold 256
	seen := map[string]bool{}
	for range 1000 {
		token := NewToken()
		if !form.MatchString(token) || CheckToken(token) != nil || seen[token] {
			t.Fatalf("%q", token)
		}
		seen[token] = true
		d, err := parseHash(HashToken(token))
		if err != nil || d != TokenCredential(token).digest {
			t.Fatalf("%q: %v", HashToken(token), err)
		}
	}
}

// The final line end is not part of a token; anything else that no header could carry is refused, and not repeated.
func TestReadToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for _, test := range []struct{ text, token, problem string }{
		{"tb_x", "tb_x", ""},
		{"tb_x\n", "tb_x", ""},
		{"tb_x\r\n", "tb_x", ""},
		{"", "", "holds no token"},
		{"\n", "", "holds no token"},
		{"\r\n\r\n", "", "holds no token"},
		{" \n", "", "holds a space"},
		{"tb_x \n", "", "holds a space"},
		{"tb_x\ntb_y\n", "", "holds control characters"},
		{"tb_x\t", "", "holds control characters"},
		{"tb_x\x00", "", "holds control characters"},
		{"tb_\x7f", "", "holds control characters"},
		{"tb_ü", "", "holds control characters or other bytes"},
		{"tb_\xff", "", "holds control characters or other bytes"},
		{"\ufefftb_x", "", "holds control characters or other bytes"},
		{strings.Repeat("x", maxToken+1), "", "holds more than 1024 bytes"},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := ReadToken(path)
		if token != test.token || (err == nil) != (test.problem == "") {
			t.Errorf("%.20q: %q, %v", test.text, token, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), path+" "+test.problem) || strings.Contains(err.Error(), "tb_")) {
			t.Errorf("%.20q: %v", test.text, err)
		}
	}
	if err := os.WriteFile(path, []byte("tb_x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(path); err == nil || !strings.Contains(err.Error(), "is open to others") {
		t.Errorf("world-readable: %v", err)
	}
}
