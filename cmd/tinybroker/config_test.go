package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// configured parses args and loads the configuration of one command, without running it.
func configured(t *testing.T, command string, args ...string) (*cobra.Command, error) {
	t.Helper()
	a := &app{streams: &streams{in: strings.NewReader(""), out: new(lockedBuffer), err: new(lockedBuffer)}}
	root := newRootCmd(a)
	cmd, _, err := root.Find([]string{command})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return cmd, a.configure(cmd)
}

// settingsUnderTest are all settings of all commands.
func settingsUnderTest(t *testing.T, visit func(command string, f *pflag.Flag)) {
	for _, command := range []string{"serve", "pub", "sub", "status"} {
		cmd, err := configured(t, command)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !isFlagOnly(f) && f.Name != "config" {
				visit(command, f)
			}
		})
	}
}

// samples are values that a setting takes, neighbours different, spelt as it prints them.
func samples(t *testing.T, f *pflag.Flag) []string {
	if f.Name == "metrics-listen" {
		return []string{"127.0.0.1:1", "unix:///s", "off"}
	}
	switch v := f.Value.(type) {
	case boolValue:
		return []string{"true", "false", "true"}
	case choiceValue:
		return []string{v.words[0], v.words[1], v.words[0]}
	case durationValue:
		return []string{"11s", "12s", "13s"}
	case listValue:
		return []string{"127.0.0.1:1", "127.0.0.1:2,unix:///s", "127.0.0.1:3"}
	case rateValue:
		return []string{"1", "2.5", "3"}
	case modeValue:
		return []string{"0600", "0660", "0666"}
	}
	switch f.Value.Type() {
	case "number":
		return []string{"11", "12", "13"}
	case "size":
		return []string{"2MiB", "3MiB", "4MiB"}
	case "string":
		return []string{"a.b", "C d", "e:f"}
	}
	t.Fatalf("--%s: no samples for %s", f.Name, f.Value.Type())
	return nil
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fileWith sets one setting in the section where it belongs.
func fileWith(f *pflag.Flag, value string) string {
	text := fmt.Sprintf("%s: %q\n", fileKey(f.Name), value)
	if _, ok := f.Value.(listValue); ok {
		text = fmt.Sprintf("%s: [%s]\n", fileKey(f.Name), value)
	}
	if sectionOf(f) == sectionClient {
		return "client:\n  " + text
	}
	return text
}

// Flag over environment over file over default: every setting, every set of sources.
func TestPrecedence(t *testing.T) {
	cleanEnvironment(t)
	settingsUnderTest(t, func(command string, f *pflag.Flag) {
		values := samples(t, f)
		for range 2 {
			for sources := range 8 {
				flag, env, file := sources&1 != 0, sources&2 != 0, sources&4 != 0 && sectionOf(f) != ""
				t.Run(fmt.Sprintf("%s/%s/flag=%v,env=%v,file=%v", command, f.Name, flag, env, file), func(t *testing.T) {
					args := []string{"--config", "none"}
					want, source := f.DefValue, sourceDefault
					if f.Name == "client-name" {
						want = userAtHost()
					}
					if file {
						args[1] = writeConfig(t, fileWith(f, values[2]))
						want, source = values[2], "file"
					}
					if env {
						t.Setenv(envName(f.Name), values[1])
						want, source = values[1], "environment "+envName(f.Name)
					}
					if flag {
						args = append(args, "--"+f.Name+"="+values[0])
						want, source = values[0], "flag --"+f.Name
					}
					cmd, err := configured(t, command, args...)
					if err != nil {
						t.Fatal(err)
					}
					if got := cmd.Flags().Lookup(f.Name).Value.String(); got != want {
						t.Errorf("%q, want %q from %s", got, want, source)
					}
				})
			}
			slices.Reverse(values) // so that true also wins over false
			if f.Value.Type() == "bool" {
				values = []string{"false", "true", "false"}
			}
		}
	})
}

func TestEmptyVariableCountsAsUnset(t *testing.T) {
	cleanEnvironment(t)
	settingsUnderTest(t, func(command string, f *pflag.Flag) {
		t.Setenv(envName(f.Name), "")
		cmd, err := configured(t, command)
		if err != nil {
			t.Fatal(err)
		}
		if got := cmd.Flags().Lookup(f.Name).Value.String(); got != f.Value.String() {
			t.Errorf("%s --%s: %q, want %q", command, f.Name, got, f.Value.String())
		}
	})
}

// A setting that protects, or says who somebody is, is not left off because its value is blank, wherever that comes from. A variable that is empty
// is none; a script that has no value for $FILE may well give --flag "$FILE".
func TestBlankIsNoProtection(t *testing.T) {
	cleanEnvironment(t)
	names := map[string][]string{
		"serve": {"tls-cert", "tls-key", "tls-client-ca", "auth-file"},
		"pub":   {"tls-ca", "tls-cert", "tls-key", "tls-server-name", "token-file"},
	}
	names["sub"], names["status"] = names["pub"], names["pub"]
	settingsUnderTest(t, func(command string, f *pflag.Flag) {
		if !slices.Contains(names[command], f.Name) {
			if isNotBlank(f) {
				t.Errorf("%s --%s may not be blank", command, f.Name)
			}
			return
		}
		refused := func(want string, args ...string) {
			t.Helper()
			_, err := configured(t, command, args...)
			if codeOf(err) != exitConfig || err.Error() != want+" is blank; give it a value or leave it out" {
				t.Errorf("%s %q: %v", command, args, err)
			}
		}
		for _, blank := range []string{"", " "} {
			refused("--"+f.Name, "--config", "none", "--"+f.Name+"="+blank)
		}
		for _, blank := range []string{`""`, `" "`, "", "~", "null"} {
			text, line := fileKey(f.Name)+": "+blank, 1
			if command != "serve" {
				text, line = "client:\n  "+text, 2
			}
			path := writeConfig(t, text)
			refused(fmt.Sprintf("%s:%d: %s", path, line, fileKey(f.Name)), "--config", path)
			// What is in force counts, and not what it wins over.
			if _, err := configured(t, command, "--config", path, "--"+f.Name+"=x"); err != nil {
				t.Error(err)
			}
			if _, stderr, end := runHere(t, "", "serve", "--config", path, "--check-config"); end.code != exitConfig || !strings.Contains(stderr, "is blank") {
				t.Errorf("--check-config: %d, %q", end.code, stderr)
			}
		}
		t.Setenv(envName(f.Name), " ")
		refused(envName(f.Name), "--config", "none")
		t.Setenv(envName(f.Name), "")
		if _, err := configured(t, command, "--config", "none"); err != nil {
			t.Error(err)
		}
	})
}

// Whatever is written for a number or a time span, it is taken within its range or refused by name and place.
func TestBadValuesAreRefusedByName(t *testing.T) {
	cleanEnvironment(t)
	settingsUnderTest(t, func(command string, f *pflag.Flag) {
		switch f.Value.(type) {
		case listValue, boolValue, choiceValue:
		default:
			if f.Value.Type() == "string" {
				return
			}
		}
		for _, bad := range []string{"-1", "x", "1e12", "9223372036854775808", "99999999999999999999999", "NaN", "inf", "5x", "1h1h", "0x10", " 5s", "5 s", ","} {
			if _, takesAnything := f.Value.(listValue); takesAnything && bad != "," {
				continue
			}
			t.Setenv(envName(f.Name), bad)
			_, err := configured(t, command)
			if f.Name == "rate" && bad == "1e12" || err == nil {
				if err == nil {
					t.Errorf("%s %s=%q is taken", command, envName(f.Name), bad)
				}
				continue
			}
			if codeOf(err) != exitConfig || !strings.HasPrefix(err.Error(), envName(f.Name)+": ") {
				t.Errorf("%s %s=%q: %v", command, envName(f.Name), bad, err)
			}
			t.Setenv(envName(f.Name), "")
			if sectionOf(f) == "" || bad == "," {
				continue
			}
			path := writeConfig(t, "# first line\n"+fileWith(f, bad))
			_, err = configured(t, command, "--config", path)
			line := 2
			if sectionOf(f) == sectionClient {
				line = 3
			}
			if want := fmt.Sprintf("%s:%d: %s: ", path, line, fileKey(f.Name)); codeOf(err) != exitConfig || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s %s: %q: %v", command, fileKey(f.Name), bad, err)
			}
		}
		t.Setenv(envName(f.Name), "")
	})
}

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

func TestAllMistakesAtOnce(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv("TINYBROKER_SEND_TIMEOUT", "5")
	t.Setenv("TINYBROKER_MAX_MEMRY", "1GiB")
	path := writeConfig(t, "typo: x\nconsumer_capacity: -1\nmax_message_size: lots\n")
	_, err := configured(t, "serve", "--config", path)
	if codeOf(err) != exitConfig {
		t.Fatal(err)
	}
	for _, want := range []string{
		path + ":1: unknown key \"typo\"", path + ":2: consumer_capacity:", path + ":3: max_message_size:",
		"TINYBROKER_SEND_TIMEOUT:", "TINYBROKER_MAX_MEMRY: no setting has this name; did you mean TINYBROKER_MAX_MEMORY?",
	} {
		if !slices.ContainsFunc(errorLines(err), func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("no line %q in\n%s", want, strings.Join(errorLines(err), "\n"))
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

func TestUnknownEnvironment(t *testing.T) {
	cleanEnvironment(t)
	for _, fine := range []string{
		"TINYBROKER_READY_FILE", "TINYBROKER_VERSION", // known to other commands
		"TINYBROKER_SERVICE_HOST", "TINYBROKER_PORT", "TINYBROKER_SERVICE_PORT", "TINYBROKER_SERVICE_PORT_GRPC",
		"TINYBROKER_PORT_7710_TCP", "TINYBROKER_PORT_7710_TCP_ADDR", "TINYBROKER_PORT_7710_TCP_PROTO", "TINYBROKER_BLUE_SERVICE_HOST",
	} {
		t.Setenv(fine, "x")
	}
	if _, err := configured(t, "serve"); err != nil {
		t.Error(err)
	}
	t.Setenv("TINYBROKER_CLIENT", "x")
	t.Setenv("TINYBROKER_CONECT_TIMEOUT", "5s")
	for command, wantCode := range map[string]int{"serve": exitConfig, "pub": exitOK} {
		_, err := configured(t, command)
		if codeOf(err) != wantCode {
			t.Errorf("%s: %v", command, err)
		}
	}
	_, stderr, _ := runHere(t, "", "status", "-s", "127.0.0.1:1")
	for _, want := range []string{
		"warning: TINYBROKER_CLIENT: no setting has this name\n",
		"warning: TINYBROKER_CONECT_TIMEOUT: no setting has this name; did you mean TINYBROKER_CONNECT_TIMEOUT?\n",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr is %q", stderr)
		}
	}
	if _, stderr, _ := runHere(t, "", "status", "-q", "-s", "127.0.0.1:1"); strings.Contains(stderr, "warning") {
		t.Errorf("-q: stderr is %q", stderr)
	}
}

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

// The ranges of the flags are those of core, at both ends.
func TestRangesAreThoseOfCore(t *testing.T) {
	bounds := map[string]func(*core.Options) int64{
		"consumer-capacity":       func(o *core.Options) int64 { return int64(o.ConsumerCapacity) },
		"consumer-capacity-bytes": func(o *core.Options) int64 { return o.ConsumerCapacityBytes },
		"group-capacity":          func(o *core.Options) int64 { return int64(o.GroupCapacity) },
		"group-capacity-bytes":    func(o *core.Options) int64 { return o.GroupCapacityBytes },
		"group-linger":            func(o *core.Options) int64 { return int64(o.GroupLinger) },
		"ack-deadline":            func(o *core.Options) int64 { return int64(o.AckDeadline) },
		"max-attempts":            func(o *core.Options) int64 { return int64(o.MaxAttempts) },
		"max-in-flight":           func(o *core.Options) int64 { return int64(o.MaxInFlight) },
		"max-message-size":        func(o *core.Options) int64 { return int64(o.MaxMessageSize) },
		"max-memory":              func(o *core.Options) int64 { return o.MaxMemory },
		"max-subscriptions":       func(o *core.Options) int64 { return int64(o.MaxSubscriptions) },
		"send-timeout":            func(o *core.Options) int64 { return int64(o.SendTimeout) },
	}
	for name, value := range bounds {
		for _, end := range []string{"min", "max"} {
			o := newServeOptions()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.addFlags(fs)
			bound, unit := boundOf(t, fs.Lookup(name).Value, end)
			if err := fs.Set(name, fmt.Sprintf("%d%s", bound, unit)); err != nil {
				t.Errorf("--%s: %v", name, err)
				continue
			}
			if value(&o.broker) != bound {
				t.Errorf("--%s is %d, want %d", name, value(&o.broker), bound)
			}
			if err := o.broker.Validate(); err != nil {
				t.Errorf("--%s %s: core refuses it: %v", name, end, err)
			}
			out := bound - 1
			if end == "max" {
				out = bound + 1
			}
			if err := fs.Set(name, fmt.Sprintf("%d%s", out, unit)); err == nil {
				t.Errorf("--%s: %d%s is taken", name, out, unit)
			}
		}
	}
}

func boundOf(t *testing.T, v pflag.Value, end string) (int64, string) {
	pick := func(least, most int64) int64 {
		if end == "min" {
			return least
		}
		return most
	}
	switch v := v.(type) {
	case *wholeValue[int]:
		return pick(int64(v.min), int64(v.max)), ""
	case *sizeValue[int]:
		return pick(int64(v.min), int64(v.max)), ""
	case *sizeValue[int64]:
		return pick(v.min, v.max), ""
	case durationValue:
		return pick(int64(v.min), int64(v.max)), "ns"
	}
	t.Fatalf("no bounds for %T", v)
	return 0, ""
}

// The defaults of the flags are the documented ones, and the settings reach the options.
func TestServeOptions(t *testing.T) {
	cleanEnvironment(t)
	var got *serveOptions
	a := &app{streams: &streams{out: new(lockedBuffer), err: new(lockedBuffer)}}
	root := newRootCmd(a)
	serve := newServeCmd(a, func(_ context.Context, o *serveOptions) error {
		got = o
		return nil
	})
	for _, c := range root.Commands() {
		if c.Name() == "serve" {
			root.RemoveCommand(c)
		}
	}
	root.AddCommand(serve)
	root.SetArgs([]string{"serve"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if got.broker != core.DefaultOptions() || got.server.Reflection != rpc.DefaultServerOptions().Reflection ||
		got.server.MaxConnections != rpc.DefaultServerOptions().MaxConnections || !slices.Equal(got.listen, []string{"127.0.0.1:7710"}) {
		t.Errorf("%+v", got)
	}
}
