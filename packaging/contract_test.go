package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The comments of services go into what the gRPC plugins make. Those for C++, Ruby and PHP of gRPC 1.51, Debian's, take a
// dollar sign for the beginning of a variable, and die of it; Python warns of a backslash in a text, and will take it for a
// mistake.
func TestContractIsPlainForPlugins(t *testing.T) {
	for i, line := range strings.Split(readFile(t, "../proto/tinybroker/v1/tinybroker.proto"), "\n") {
		if strings.ContainsAny(line, "$\\") {
			t.Errorf("line %d: %s", i+1, line)
		}
	}
}

// The check against the contract that was released last fails for what would break its clients, and for nothing else.
func TestBreakingChangesAreFound(t *testing.T) {
	needs(t, "buf")
	proto := readFile(t, "../proto/tinybroker/v1/tinybroker.proto")
	for _, c := range []struct {
		name, from, to string
		breaks         bool
	}{
		{name: "nothing"},
		{"a comment", "message Message {", "// More words.\nmessage Message {", false},
		{"a new field", "message Message {", "message Message {\n  string added_later = 100;", false},
		{"a new message", "message Message {", "message AddedLater {}\nmessage Message {", false},
		{"another number", "string topic = 1;", "string topic = 99;", true},
		{"another type", "bytes payload = 2;", "string payload = 2;", true},
		{"another name", "string topic = 1;", "string subject = 1;", true},
		{"a call less", "rpc Publish(PublishRequest)", "rpc PublishOne(PublishRequest)", true},
		{"an enum value less", `DELIVERY_MODE_MULTI = 1;`, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(proto, c.from) {
				t.Fatalf("the contract holds no %q", c.from)
			}
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "buf.yaml"), readFile(t, "../proto/buf.yaml"), 0o644)
			writeFile(t, filepath.Join(dir, "tinybroker", "v1", "tinybroker.proto"), strings.Replace(proto, c.from, c.to, 1), 0o644)
			baseline, err := filepath.Abs("../proto/released.binpb")
			if err != nil {
				t.Fatal(err)
			}
			cmd := command(t, "buf", "breaking", "--against", baseline)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.breaks {
				t.Errorf("%v\n%s", err, out)
			}
			if c.breaks && !strings.Contains(string(out), "tinybroker.proto:") {
				t.Errorf("it says %q", out)
			}
		})
	}
}

// `make check` and .ci/run do the same, step by step, and every step is a target.
func TestCIIsMakeCheck(t *testing.T) {
	makefile := readFile(t, "../Makefile")
	steps := regexp.MustCompile(`(?m)^step make (\S+)`).FindAllStringSubmatch(readFile(t, "../.ci/run"), -1)
	line := regexp.MustCompile(`(?m)^check: (.*)$`).FindStringSubmatch(makefile)
	if line == nil || len(steps) < 10 {
		t.Fatalf("%q, %q", line, steps)
	}
	var inCI []string
	for _, step := range steps {
		inCI = append(inCI, step[1])
		if !strings.Contains(makefile, "\n"+step[1]+":") {
			t.Errorf("the Makefile has no target %s", step[1])
		}
	}
	if got := strings.Join(inCI, " "); got != line[1] {
		t.Errorf(".ci/run does   %s\nmake check does %s", got, line[1])
	}
}

// The unit goes on trying, as long as an address may become free or appear; only what is wrong in itself it does not try again.
func TestUnitGoesOnTrying(t *testing.T) {
	section, settings := "", map[string]string{}
	for line := range strings.Lines(readFile(t, "tinybroker.service")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		} else if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			settings[section+key] = value
		}
	}
	for key, want := range map[string]string{
		"[Unit]StartLimitIntervalSec":       "0",
		"[Service]Restart":                  "on-failure",
		"[Service]RestartPreventExitStatus": "64 78",
	} {
		if settings[key] != want {
			t.Errorf("%s=%s, want %s", key, settings[key], want)
		}
	}
}

// Every exception in the linter's configuration says why.
func TestLinterExceptionsHaveReasons(t *testing.T) {
	lines := strings.Split(readFile(t, "../.golangci.yml"), "\n")
	checked := 0
	section := regexp.MustCompile(`^\s+(exclude-functions|disabled-checks|rules):$`)
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	for i, line := range lines {
		m := section.FindStringSubmatch(line)
		if len(m) == 0 || m[1] == "rules" && !strings.Contains(lines[i-1], "generated: strict") {
			continue
		}
		explained := false
		for j := i + 1; j < len(lines) && indent(lines[j]) > indent(line); j++ {
			text := strings.TrimSpace(lines[j])
			switch {
			case strings.HasPrefix(text, "#"):
				explained = true
			case strings.HasPrefix(text, "- "):
				checked++
				if !explained {
					t.Errorf(".golangci.yml:%d: no reason for %s", j+1, text)
				}
				explained = m[1] != "rules" // one reason may stand for several names in a list
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d exceptions found", checked)
	}
}

// What the README and the pages say is committed is there.
func TestTopLevelPages(t *testing.T) {
	for _, name := range []string{"CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"} {
		if info, err := os.Stat(filepath.Join("..", name)); err != nil || info.Size() < 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
