package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is written in the file counts as it is written, whatever YAML makes of it: a value means the same there as in a flag.
func TestValuesInFile(t *testing.T) {
	cleanEnvironment(t)
	for text, want := range map[string]string{
		"send_timeout: 5":                       `send_timeout: "5" has no unit`,
		"send_timeout: 1.5":                     `send_timeout: "1.5" has no unit`,
		"send_timeout: .nan":                    "send_timeout:",
		"socket_mode: 432":                      `socket_mode: "432" is not a mode such as 0600 or 0660`,
		"socket_mode: 0060":                     "socket_mode:",
		"socket_mode: 01777":                    "socket_mode:",
		"consumer_capacity: 1.5":                `consumer_capacity: "1.5" is not a whole number`,
		"consumer_capacity: true":               "consumer_capacity:",
		"consumer_capacity: 1e12":               "consumer_capacity:",
		"max_memory: 99999999999999999999":      "max_memory:",
		"consumer_capacity: 0":                  "consumer_capacity:",
		"insecure: 2":                           `insecure: "2" is not true or false`,
		"log_level: debugg":                     `log_level: "debugg" is not one of debug, info, warn, error`,
		"log_level: INFO":                       `log_level: "INFO" is not one of debug, info, warn, error`,
		"log_format: JSON":                      `log_format: "JSON" is not one of auto, text, json`,
		"consumer_capacity: 0x7fffffffffffffff": "consumer_capacity:",
		"consumer_capacity: 0x10":               `consumer_capacity: "0x10" is not a whole number`,
		"consumer_capacity: 1e3":                `consumer_capacity: "1e3" is not a whole number`,
		"consumer_capacity: 1_000":              `consumer_capacity: "1_000" is not a whole number`,
		"listen: []":                            "listen: an empty list; leave it out for the default",
		"listen: ''":                            `listen: "" holds an empty entry`,
		"listen: '  '":                          `listen: "" holds an empty entry`,
		"listen: ['127.0.0.1:1', ' ']":          `listen: "127.0.0.1:1, " holds an empty entry`,
	} {
		_, err := configured(t, "serve", "--config", writeConfig(t, text))
		if codeOf(err) != exitConfig || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"consumer_capacity: 100": "100",
		"consumer_capacity: 010": "10",
		"max_memory: 2097152":    "2MiB",
		"shutdown_timeout: 0":    "0",
		"reflection: false":      "false",
		"socket_mode: 0660":      "0660",
		"socket_mode: '660'":     "0660",
		"socket_mode: 0o666":     "0666",
		"addr_file: 7710":        "7710",
		"addr_file: 2024-01-01":  "2024-01-01",
		"addr_file: 1.50":        "1.50",
		"addr_file: yes":         "yes",
	} {
		cmd, err := configured(t, "serve", "--config", writeConfig(t, text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		key, _, _ := strings.Cut(text, ":")
		if got := cmd.Flags().Lookup(strings.ReplaceAll(key, "_", "-")).Value.String(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestConfigFileMistakes(t *testing.T) {
	cleanEnvironment(t)
	for _, c := range []struct{ name, text, want string }{
		{"misspelt", "max_memry: 1GiB", `:1: unknown key "max_memry"; did you mean "max_memory"?`},
		{"hyphens", "a: 1\nmax-memory: 1GiB", `:2: unknown key "max-memory"; did you mean "max_memory"?`},
		{"capitals", "Max_Memory: 1GiB", `:1: unknown key "Max_Memory"; did you mean "max_memory"?`},
		{"nothing like it", "tls: {cret: x}", `:1: unknown key "tls"`},
		{"a client's setting at the top", "server: x", `:1: unknown key "server"; it belongs under client:`},
		{"a broker's setting in the section", "client:\n  max_memory: 1GiB", `:2: unknown key "max_memory"; it belongs at the top level`},
		{"misspelt in the section", "client:\n  sever: x", `:2: unknown key "sever"; did you mean "server"?`},
		{"a flag that is no setting", "print_config: true", `:1: unknown key "print_config"`},
		{"a dot in a key", "client.server: x", `:1: unknown key "client.server"`},
		{"twice", "max_memory: 1GiB\n\nmax_memory: 2GiB", `:3: "max_memory" is set twice, first in line 1`},
		{"twice in the section", "client: {server: a, server: b}", `:1: "server" is set twice`},
		{"a list for a value", "max_memory: [1GiB]", `:1: max_memory: a list where a value belongs`},
		{"a map for a value", "max_memory:\n  x: 1", `:2: max_memory: a map where a value belongs`},
		{"a map in a list", "listen:\n- x: 1", `:2: listen: a map inside a list of values`},
		{"a value for a section", "client: x", `:1: a value where settings belong (name: value)`},
		{"a list for everything", "- max_memory", `:1: a list where settings belong (name: value)`},
		{"only text", "max_memory 1GiB", `:1: a value where settings belong (name: value)`},
		{"tab", "client:\n\tserver: x", ":2: "},
		{"not closed", "listen: [a", ":1: "},
		{"two documents", "max_memory: 1GiB\n---\nmax_memory: 2GiB", ":2: a second YAML document"},
		{"merge key", "a: &a {x: 1}\n<<: *a", `unknown key "<<"`},
		{"key that is a list", "[a]: b", `unknown key`},
		{"not UTF-8", "addr_file: \xff", ":1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeConfig(t, c.text)
			for _, command := range []string{"serve", "pub"} {
				_, err := configured(t, command, "--config", path)
				if codeOf(err) != exitConfig || !strings.Contains(err.Error(), path+":") || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v\nwant …%s", command, err, c.want)
				}
			}
		})
	}
}

func TestConfigFilesThatAreFine(t *testing.T) {
	cleanEnvironment(t)
	for name, text := range map[string]string{
		"empty": "", "comments": "# nothing\n", "document marks": "---\nmax_memory: 512MiB\n...\n", "no value": "max_memory:\nclient:\n",
		"alias": "addr_file: &a x\nlog_level: info\n", "byte order mark": "\ufeffmax_memory: 512MiB\n", "CRLF": "max_memory: 512MiB\r\nlisten: [127.0.0.1:7710]\r\n",
		"one address": "listen: 127.0.0.1:7710\n", "several in a text": "listen: 127.0.0.1:7710, unix:///x\n",
	} {
		cmd, err := configured(t, "serve", "--config", writeConfig(t, text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := cmd.Flags().Lookup("max-memory").Value.String(); got != "512MiB" {
			t.Errorf("%s: max_memory is %s", name, got)
		}
	}
}

// Addresses in one text are parted by commas, as in flags and variables, and hold blanks; so do those of a list.
func TestListsInFile(t *testing.T) {
	cleanEnvironment(t)
	for text, want := range map[string][]string{
		"listen: unix:///tmp/a b.sock":                     {"unix:///tmp/a b.sock"},
		"listen: '127.0.0.1:1,unix:///tmp/a b.sock'":       {"127.0.0.1:1", "unix:///tmp/a b.sock"},
		"listen: [127.0.0.1:1, 'unix:///tmp/a b,c.sock']":  {"127.0.0.1:1", "unix:///tmp/a b,c.sock"},
		"listen:\n- 127.0.0.1:1\n- unix:///tmp/a b.sock\n": {"127.0.0.1:1", "unix:///tmp/a b.sock"},
		"listen:\n": {"127.0.0.1:7710"},
	} {
		cmd, err := configured(t, "serve", "--config", writeConfig(t, text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := *cmd.Flags().Lookup("listen").Value.(listValue).p; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestConfigPlaces(t *testing.T) {
	cleanEnvironment(t)
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Chdir(t.TempDir())
	memory := func(args ...string) string {
		t.Helper()
		cmd, err := configured(t, "serve", args...)
		if err != nil {
			return err.Error()
		}
		return cmd.Flags().Lookup("max-memory").Value.String()
	}
	// The working directory is not looked at.
	for _, name := range []string{"config.yaml", "tinybroker", "tinybroker.yaml"} {
		if err := os.WriteFile(name, []byte("max_memory: 9GiB"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := memory(); got != "512MiB" {
		t.Errorf("without a file: %s", got)
	}
	path := filepath.Join(dir, "tinybroker", "config.yaml")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("max_memory: 3GiB"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := memory(); got != "3GiB" {
		t.Errorf("with a file in its place: %s", got)
	}
	if got := memory("--config", "none"); got != "512MiB" {
		t.Errorf("with none: %s", got)
	}
	other := writeConfig(t, "max_memory: 4GiB")
	t.Setenv("TINYBROKER_CONFIG", other)
	if got := memory(); got != "4GiB" {
		t.Errorf("with a file from the environment: %s", got)
	}
	if got := memory("--config", "none"); got != "512MiB" {
		t.Errorf("with none by flag: %s", got)
	}
	if got := memory("--config", "missing.yaml"); got != "configuration file missing.yaml: no such file or directory" {
		t.Errorf("with a file that is not there: %s", got)
	}
	for _, blank := range []string{"", " "} {
		if got := memory("--config", blank); got != "--config is blank; name a file, or none" {
			t.Errorf("with a blank name: %s", got)
		}
	}
	if got := memory("--config", dir); got != "configuration file "+dir+": is a directory" {
		t.Errorf("with a directory: %s", got)
	}
	t.Setenv("TINYBROKER_CONFIG", "")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := memory(); got != "configuration file "+path+": is a directory" {
		t.Errorf("with a directory in its place: %s", got)
	}
	t.Setenv("XDG_CONFIG_HOME", "/dev/null")
	if got := memory(); got != "512MiB" {
		t.Errorf("where there can be no file: %s", got)
	}
}
