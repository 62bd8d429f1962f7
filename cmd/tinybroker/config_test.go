package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
