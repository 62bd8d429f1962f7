//go:build unix

package auth

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadSecretRefusesOpenFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o440: true,
		0o644: false, 0o604: false, 0o602: false, 0o660: false, 0o620: false, 0o601: false, 0o777: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		data, err := ReadSecret(path)
		if ok != (err == nil) || ok != (string(data) == "secret") {
			t.Errorf("mode %o: %q, %v", mode, data, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), path+": holds a secret and is open to others (mode 0") || !strings.Contains(err.Error(), "chmod 600")) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	// A link is as private as what it leads to.
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o644: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSecret(link); ok != (err == nil) {
			t.Errorf("mode %o behind a link: %v", mode, err)
		}
	}
	for what, path := range map[string]string{"no such file or directory": path + ".missing", "is a directory": t.TempDir()} {
		if _, err := ReadSecret(path); err == nil || err.Error() != path+": "+what {
			t.Errorf("%v", err)
		}
	}
}
