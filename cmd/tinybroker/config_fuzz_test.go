package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzConfigFile: whatever the file, it is taken or refused, and what is taken means the same when it is printed and read again.
func FuzzConfigFile(f *testing.F) {
	for _, text := range []string{
		"", "listen: 127.0.0.1:0\nmax_memory: 64MiB\n", "listen: [a, b]\nclient:\n  server: x:1\n", "a: &x {b: *x}", "max_memory: 1\nmax_memory: 2", "\tlisten: x", "---\n---\n",
	} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		cleanEnvironment(t)
		path := filepath.Join(dir, "config.yaml")
		show := func(text []byte) (string, string, int) {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			stdout, stderr, end := runHere(t, "", "serve", "--config", path, "--print-config")
			return stdout, stderr, end.code
		}
		printed, complaint, code := show(text)
		switch {
		case code == exitConfig, code == exitUnavailable: // the latter for names that are not there, or not yet
			for line := range strings.Lines(complaint) {
				if !strings.HasPrefix(line, "tinybroker: ") {
					t.Errorf("refused with the line %q", line)
				}
			}
			return
		case code != 0:
			t.Fatalf("exit code %d: %s", code, complaint)
		}
		again, complaint, code := show([]byte(printed))
		if code != 0 || withoutComments(again) != withoutComments(printed) {
			t.Errorf("printed as\n%s\nwhich is read as\n%s\n%s", printed, again, complaint)
		}
	})
}
