package main

import (
	"strings"
	"testing"
)

// What --print-config prints is a configuration file that means the same.
func TestPrintConfigRoundTrip(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv("TINYBROKER_SHUTDOWN_TIMEOUT", "90s")
	path := writeConfig(t, "listen: ['127.0.0.1:0', 'unix:///tmp/a b.sock']\nmax_memory: 1000000000\naddr_file: 'yes # no: 1'\nreflection: false\n")
	_, stderr, end := runHere(t, "", "serve", "--config", path, "--print-config", "--log-level", "debug", "--consumer-capacity-bytes", "1000")
	if end.code != exitUsage || !strings.Contains(stderr, "--consumer-capacity-bytes") {
		t.Errorf("out of range: %d, %q", end.code, stderr)
	}
	first, stderr, end := runHere(t, "", "serve", "--config", path, "--print-config", "--log-level", "debug")
	if end.code != 0 || stderr != "" {
		t.Fatalf("%d, %q", end.code, stderr)
	}
	for _, want := range []string{
		"# file " + path + ":1\nlisten:\n  - 127.0.0.1:0\n  - unix:///tmp/a b.sock\n",
		"max_memory: 1000000000B # file " + path + ":2\n",
		"addr_file: 'yes # no: 1' # file " + path + ":3\n",
		"reflection: false # file " + path + ":4\n",
		"shutdown_timeout: 1m30s # environment TINYBROKER_SHUTDOWN_TIMEOUT\n",
		"log_level: debug # flag --log-level\n",
		"consumer_capacity: 65536 # default\n",
		"\n# auth_file: # default\n",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	cleanEnvironment(t)
	second, stderr, end := runHere(t, "", "serve", "--config", writeConfig(t, first), "--print-config")
	if end.code != 0 {
		t.Fatalf("%d, %q", end.code, stderr)
	}
	if a, b := withoutComments(first), withoutComments(second); a != b {
		t.Errorf("printed again:\n%s\nwant\n%s", b, a)
	}
}

func withoutComments(yaml string) string {
	var b strings.Builder
	for line := range strings.Lines(yaml) {
		if !strings.HasPrefix(line, "#") {
			i := strings.LastIndex(line, " # ")
			if i < 0 {
				i = len(line) - 1
			}
			b.WriteString(line[:i] + "\n")
		}
	}
	return b.String()
}

func TestCheckConfig(t *testing.T) {
	cleanEnvironment(t)
	good := writeConfig(t, "max_memory: 1GiB\nclient: {server: 'unix:///x', connect_timeout: 1s}\n")
	stdout, stderr, end := runHere(t, "", "serve", "--config", good, "--check-config")
	if end.code != 0 || stdout != "" || stderr != "configuration ok ("+good+")\n" {
		t.Errorf("%d, %q, %q", end.code, stdout, stderr)
	}
	// What only clients would notice is found here, too.
	bad := writeConfig(t, "client:\n  connect_timeout: 5\n")
	_, stderr, end = runHere(t, "", "serve", "--config", bad, "--check-config")
	if end.code != exitConfig || !strings.Contains(stderr, bad+":2: connect_timeout: \"5\" has no unit") {
		t.Errorf("%d, %q", end.code, stderr)
	}
	// A look at the configuration does not take the place of the check.
	stdout, _, end = runHere(t, "", "serve", "--config", bad, "--check-config", "--print-config")
	if end.code != exitConfig || stdout != "" {
		t.Errorf("%d, %q", end.code, stdout)
	}
	stdout, _, end = runHere(t, "", "serve", "--config", good, "--check-config", "--print-config")
	if end.code != 0 || !strings.Contains(stdout, "max_memory: 1GiB") {
		t.Errorf("%d, %q", end.code, stdout)
	}
	for _, c := range []struct{ text, want string }{
		{"max_memory: 1MiB\nmax_message_size: 2MiB", "max_message_size: 2MiB is more than max_memory (1MiB)"},
		{"listen: [0.0.0.0:7710, ':7711']", `listen: "0.0.0.0:7710" can be reached from other machines`},
		{"listen: 7710", `listen: "7710" is not host:port or unix:///path`},
		{"listen: '127.0.0.1:99999'", `there is no port "99999"`},
		{"listen: 'unix:relative'", ""},
		{"listen: 'unix://relative'", "names no absolute path"},
	} {
		_, stderr, end := runHere(t, "", "serve", "--config", writeConfig(t, c.text), "--check-config")
		if c.want == "" {
			if end.code != 0 {
				t.Errorf("%s: %q", c.text, stderr)
			}
			continue
		}
		if end.code != exitConfig || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: %d, %q", c.text, end.code, stderr)
		}
	}
}
