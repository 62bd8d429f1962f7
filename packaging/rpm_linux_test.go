package packaging

import (
	"os"
	"strings"
	"testing"
)

// The rpm asks for the same as the deb, at each step of its life, and keeps what the user has changed.
func TestRPM(t *testing.T) {
	rpm := find(t, "Linux Package", ".rpm").Path
	needs(t, "rpm")
	m := newMachine(t)
	run := func(args ...string) string {
		t.Helper()
		output(t, "rpm", append([]string{"--root=" + m.root, "--nodeps"}, args...)...)
		return m.asked()
	}

	if got := run("-i", rpm); got != "daemon-reload\n" {
		t.Errorf("the installation asks systemd for %q", got)
	}
	config := m.path("/etc/tinybroker/config.yaml")
	changed := readFile(t, config) + "max_memory: 1GiB\n"
	writeFile(t, config, changed, 0o644)
	if got := run("-U", "--force", rpm); strings.ReplaceAll(got, "daemon-reload\n", "") != "" {
		t.Errorf("the update asks systemd for %q", got)
	}
	if readFile(t, config) != changed {
		t.Error("the update has replaced the configuration")
	}
	if got := run("-e", "tinybroker"); got != "disable --now --quiet tinybroker.service\ndaemon-reload\n" {
		t.Errorf("the removal asks systemd for %q", got)
	}
	if readFile(t, config+".rpmsave") != changed {
		t.Error("the removal has taken the configuration")
	}
	if _, err := os.Stat(m.path("/usr/bin/tinybroker")); err == nil {
		t.Error("the removal has left the program")
	}
}
