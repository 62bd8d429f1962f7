package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// uses are ways to use each command whose settings may clash.
var uses = [][]string{
	{"pub", "x"}, {"pub", "x", "payload"}, {"sub", "x"}, {"sub", "x", "-g", "workers"}, {"sub", "x", "-x", "cat"}, {"sub", "x", "-g", "workers", "-x", "cat"},
	{"top"}, {"top", "--once"}, {"top", "--view", "subs"}, {"ls", "topics"}, {"bench"}, {"bench", "-g", "workers"},
}

// clashSample is a value of a setting that makes it clash with others, if any does.
func clashSample(t *testing.T, f *pflag.Flag) string {
	switch f.Name {
	case "format":
		return "{{.Topic}}"
	case "group":
		return "workers"
	case "sort":
		return "dropped"
	case "exec-parallel":
		return "4"
	case "max-in-flight", "count", "msgs":
		return "2"
	case "delimiter", "key-delimiter":
		return ","
	case "output":
		return "json"
	case "input":
		return "json"
	case "overflow":
		return "reject"
	}
	return samples(t, f)[0]
}

// parsed runs a command up to where it would begin, and returns its flags.
func parsed(t *testing.T, args []string) (*pflag.FlagSet, error) {
	t.Helper()
	a := &app{streams: &streams{in: strings.NewReader(""), out: new(lockedBuffer), err: new(lockedBuffer)}}
	root := &cobra.Command{Use: "tinybroker", SilenceErrors: true, SilenceUsage: true, PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
		return a.configure(cmd)
	}}
	root.AddCommand(
		newPubCmd(a, func(context.Context, *pubOptions) error { return nil }),
		newSubCmd(a, func(context.Context, *subOptions) error { return nil }),
		newTopCmd(a, func(context.Context, *topOptions) error { return nil }),
		newLsCmd(a, func(context.Context, *lsOptions) error { return nil }),
		newBenchCmd(a, func(context.Context, *benchOptions) error { return nil }),
	)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(t.Context())
	return cmd.Flags(), err
}

// What the environment says never stops a command that the command line alone says all about, and what that says is so, whichever
// two settings come together.
func TestFlagsWinOverClashingVariables(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("TINYBROKER_CONFIG", "none")
	given, tried := 0, 0
	for _, use := range uses {
		flags, err := parsed(t, use)
		if err != nil {
			t.Fatalf("%q: %v", use, err)
		}
		var own []*pflag.Flag
		flags.VisitAll(func(f *pflag.Flag) {
			if sectionOf(f) == "" && !isFlagOnly(f) && f.Name != "config" {
				own = append(own, f)
			}
		})
		for _, variable := range own {
			name, value := envName(variable.Name), clashSample(t, variable)
			t.Run(strings.Join(use, " ")+" "+name, func(t *testing.T) {
				t.Setenv(name, value)
				if _, err := parsed(t, use); err != nil {
					t.Errorf("with %s=%s: %v", name, value, err)
				}
			})
			for _, flag := range own {
				want := clashSample(t, flag)
				args := append(slices.Clip(use), "--"+flag.Name+"="+want)
				if flag == variable {
					continue
				}
				t.Run(strings.Join(args, " ")+" "+name, func(t *testing.T) {
					tried++
					if _, err := parsed(t, args); err != nil {
						return // wrong by itself
					}
					given++
					t.Setenv(name, value)
					flags, err := parsed(t, args)
					if err != nil {
						t.Errorf("with %s=%s: %v", name, value, err)
					} else if got := flags.Lookup(flag.Name).Value.String(); got != want {
						t.Errorf("with %s=%s: --%s is %q", name, value, flag.Name, got)
					}
				})
			}
		}
	}
	if given < tried/2 {
		t.Errorf("only %d of %d pairs could be tried", given, tried)
	}
}

// What clashes on the command line is a mistake, and so are variables that contradict each other.
func TestClashes(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, c := range []struct {
		use, left, right string
		equal            bool
	}{
		{"pub x", "rate=5", "interval=1s", true},
		{"pub x", "key=k", "key-delimiter=:", true},
		{"pub x", "tee=true", "output=json", true},
		{"pub x", "key-delimiter=:", "input=json", false},
		{"pub x", "delimiter=,", "input=json", false},
		{"pub x", "crlf=true", "input=nul", false},
		{"pub x", "skip-empty=true", "input=len", false},
		{"sub x", "format={{.Topic}}", "output=json", true},
		{"sub x", "no-delimiter=true", "delimiter=,", true},
		{"sub x", "delimiter=,", "output=json", false},
		{"sub x", "no-delimiter=true", "output=hex", false},
		{"sub x -g g -x cat", "max-in-flight=2", "exec-parallel=4", true},
		{"top", "once=true", "batch=true", true},
		{"bench", "msgs=5", "duration=1s", true},
	} {
		t.Run(c.use+" "+c.left+" "+c.right, func(t *testing.T) {
			args := strings.Fields(c.use)
			set := func(setting string) (name, value string) {
				name, value, _ = strings.Cut(setting, "=")
				return name, value
			}
			if _, err := parsed(t, append(slices.Clip(args), "--"+c.left, "--"+c.right)); codeOf(err) != exitUsage {
				t.Errorf("both flags: %v", err)
			}
			for _, setting := range []string{c.left, c.right} {
				name, value := set(setting)
				t.Setenv(envName(name), value)
			}
			for _, setting := range []string{c.left, c.right} {
				name, want := set(setting)
				other, otherValue := set(map[bool]string{true: c.right, false: c.left}[setting == c.left])
				flags, err := parsed(t, append(slices.Clip(args), "--"+setting))
				if err != nil {
					t.Errorf("--%s: %v", setting, err)
					continue
				}
				if got := flags.Lookup(name).Value.String(); got != want {
					t.Errorf("--%s is %q", setting, got)
				}
				if c.equal {
					if f := flags.Lookup(other); f.Value.String() == otherValue {
						t.Errorf("--%s: --%s is %q in spite of it", setting, other, f.Value)
					}
				}
			}
			if _, err := parsed(t, args); c.equal != (codeOf(err) == exitUsage) || c.equal && !strings.Contains(hintOf(err), "the environment sets TINYBROKER_") {
				t.Errorf("both variables: %v, %s", err, hintOf(err))
			}
		})
	}
}

// A value that only another command knows is for that one; one that none knows is a mistake.
func TestVariablesMeantForOthers(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, c := range []struct {
		use, name, value string
		code             int
	}{
		{"pub x", "OUTPUT", "hex", exitOK},
		{"top --once", "OUTPUT", "hex", exitOK},
		{"ls topics", "OUTPUT", "text", exitOK},
		{"pub x payload", "COUNT", "0", exitOK},
		{"sub x -g g", "ACK", "explicit", exitOK},
		{"pub x", "OUTPUT", "hexx", exitConfig},
		{"pub x payload", "COUNT", "-1", exitConfig},
		{"pub x", "CONNECT_TIMEOUT", "5", exitConfig},
	} {
		t.Run(c.use+" "+c.name+"="+c.value, func(t *testing.T) {
			t.Setenv(envPrefix+c.name, c.value)
			flags, err := parsed(t, strings.Fields(c.use))
			if codeOf(err) != c.code {
				t.Fatal(err)
			}
			if f := flags.Lookup(strings.ToLower(c.name)); c.code == exitOK && f.Value.String() != f.DefValue {
				t.Errorf("--%s is %q", f.Name, f.Value)
			}
		})
	}
}
