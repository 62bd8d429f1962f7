package main

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// asNobody runs f as a user whom the modes of files mean, also where the test is run by root.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65532
	runtime.LockOSThread() // never unlocked on failure: the thread ends with the goroutine
	if err := syscall.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// Nobody asked for a file in a place that may not be looked into. A file that may not be read is another matter.
func TestConfigPlaceOfSomebodyElse(t *testing.T) {
	cleanEnvironment(t)
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	path := filepath.Join(dir, "tinybroker", "config.yaml")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("max_memory: 3GiB"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // which is the test's own, too
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) }) // so that it can be removed
	for _, c := range []struct {
		name            string
		dirMode, mode   os.FileMode
		args            []string
		want, complaint string
	}{
		{"all is open", 0o755, 0o644, nil, "3GiB", ""},
		{"the place is closed", 0o600, 0o644, nil, "512MiB", ""},
		{"the place is closed and was asked for", 0o600, 0o644, []string{"--config", path}, "", "configuration file " + path + ": permission denied"},
		{"the file is closed", 0o755, 0, nil, "", "configuration file " + path + ": permission denied"},
	} {
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.dirMode); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			cmd, err := configured(t, "serve", c.args...)
			switch {
			case c.complaint != "":
				if codeOf(err) != exitConfig || err.Error() != c.complaint {
					t.Errorf("%s: %v", c.name, err)
				}
			case err != nil:
				t.Errorf("%s: %v", c.name, err)
			default:
				if got := cmd.Flags().Lookup("max-memory").Value.String(); got != c.want {
					t.Errorf("%s: %s, want %s", c.name, got, c.want)
				}
			}
		})
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
