package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// uncomment turns every setting of the sample on: settings have no space after the #, unless they are indented.
func uncomment(sample string) string {
	var b strings.Builder
	for line := range strings.Lines(sample) {
		if setting, ok := strings.CutPrefix(line, "#"); ok && (!strings.HasPrefix(setting, " ") || strings.HasPrefix(setting, "  ")) {
			b.WriteString(setting)
		}
	}
	return b.String()
}

// withoutBlanks leaves out what has to be filled in.
func withoutBlanks(text string) string {
	for _, section := range []string{sectionServe, sectionClient} {
		for key, f := range settingsOf(section) {
			if isNotBlank(f) {
				text = strings.ReplaceAll(text, "\n"+key+":\n", "\n")
				text = strings.ReplaceAll(text, "\n  "+key+":\n", "\n")
			}
		}
	}
	return text
}

// As it stands the sample changes nothing; with every comment taken off it is accepted, and means the defaults, but for settings that have no
// default and must not be blank.
func TestSampleConfig(t *testing.T) {
	cleanEnvironment(t)
	sample := string(sampleConfig(testRoot()))
	defaults, stderr, end := runHere(t, "", "serve", "--config", "none", "--print-config")
	if end.code != 0 {
		t.Fatal(stderr)
	}
	for name, text := range map[string]string{"as it stands": sample, "uncommented": withoutBlanks(uncomment(sample))} {
		path := writeConfig(t, text)
		if _, stderr, end := runHere(t, "", "serve", "--config", path, "--check-config"); end.code != 0 {
			t.Errorf("%s: %s", name, stderr)
			continue
		}
		got, stderr, end := runHere(t, "", "serve", "--config", path, "--print-config")
		if end.code != 0 || withoutComments(got) != withoutComments(defaults) {
			t.Errorf("%s: %s\n%s\nwant\n%s", name, stderr, got, defaults)
		}
	}
}

// Every setting is there, once, in its section and with its meaning above it.
func TestSampleConfigIsComplete(t *testing.T) {
	serve, client, found := strings.Cut(string(sampleConfig(testRoot())), "\n#client:\n")
	if !found {
		t.Fatal("no section for clients")
	}
	for _, part := range []struct{ section, text, indent string }{{sectionServe, serve, ""}, {sectionClient, client, "  "}} {
		settings := settingsOf(part.section)
		if len(settings) < 5 {
			t.Fatalf("%s: %d settings", part.section, len(settings))
		}
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			if n := strings.Count(part.text, "\n#"+part.indent+key+":"); n != 1 {
				t.Errorf("%s: %s is there %d times", part.section, key, n)
			}
			_, usage := pflag.UnquoteUsage(settings[key])
			if !strings.Contains(strings.ReplaceAll(part.text, "\n# ", " "), usage) {
				t.Errorf("%s: %s is not explained", part.section, key)
			}
		}
	}
}

// Where the file is looked for.
func TestConfigPaths(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("AppData", "/users/me/roaming")
	for _, c := range []struct{ system, xdg, want string }{
		{"linux", "/xdg", "/xdg/tinybroker/config.yaml /etc/tinybroker/config.yaml"},
		{"linux", "", "/home/me/.config/tinybroker/config.yaml /etc/tinybroker/config.yaml"},
		{"darwin", "", "/home/me/.config/tinybroker/config.yaml /etc/tinybroker/config.yaml"},
		{"windows", "", "/users/me/roaming/tinybroker/config.yaml"},
		{"windows", "/xdg", "/xdg/tinybroker/config.yaml"},
	} {
		t.Setenv("XDG_CONFIG_HOME", c.xdg)
		if got := filepath.ToSlash(strings.Join(configPathsOn(c.system), " ")); got != c.want {
			t.Errorf("%s, XDG_CONFIG_HOME=%q: %s, want %s", c.system, c.xdg, got, c.want)
		}
	}
}

// A default that differs between commands is none of the file's.
func TestSampleConfigDefaults(t *testing.T) {
	sample := string(sampleConfig(testRoot()))
	for _, want := range []string{"#listen: ['127.0.0.1:7710']\n", "#max_memory: 512MiB\n", "#reflection: true\n", "#addr_file:\n", "#  server: 127.0.0.1:7710\n", "#  reconnect_timeout:\n"} {
		if !strings.Contains(sample, "\n"+want) {
			t.Errorf("no %q in\n%s", want, sample)
		}
	}
}
