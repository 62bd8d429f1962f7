package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestTopUsage(t *testing.T) {
	cleanEnvironment(t)
	for _, c := range []struct {
		args string
		want string
	}{
		{"top x", `top: takes no arguments, got "x"`},
		{"top --view nonsense", `--view: "nonsense" is not one of overview, topics, subs, groups, evictions`},
		{"top --interval 249ms", `--interval: "249ms" is not between 250ms and 1h`},
		{"top --interval 5", `--interval: "5" has no unit: write 5s for seconds`},
		{"top --interval soon", `--interval: "soon" is not a duration such as 500ms, 5s or 1m30s`},
		{"top --sort in", `top: --sort: the overview has an order of its own; choose another with --view`},
		{"top --view topics --sort lost", `top: --sort: "lost" is not one of in, topic, out, bytes, subs, groups, last`},
		{"top --filter \x1b", "top: --filter: holds a control character, and no name does"},
		{"top --filter \xff", "top: --filter: is not UTF-8"},
		{"top --filter " + strings.Repeat("x", 513), "top: --filter: is longer than 512 bytes"},
		{"top --limit 0", `--limit: "0" is not a whole number between 1 and 100000`},
		{"top --limit 100001", `--limit: "100001" is not a whole number between 1 and 100000`},
		{"top --once --batch", "top: --once and --batch exclude each other"},
		{"top -o json", "top: --output is for --once and --batch"},
		{"top --once -o xml", `--output: "xml" is not one of table, json`},
		{"ls", "ls: needs one of topics, subs, groups, members, evictions"},
		{"ls queues", `ls: "queues" is not one of topics, subs, groups, members, evictions`},
		{"ls topics subs", `ls: "topics subs" is not one of topics, subs, groups, members, evictions`},
		{"ls member", "ls: \"member\" is not one of topics, subs, groups, members, evictions\nhint: did you mean tinybroker ls members?"},
		{"ls groups --sort in", `ls: --sort: "in" is not one of pending, group, members, in-flight, out, redelivered, dead`},
		{"ls topics --filter \x00", "ls: --filter: holds a control character, and no name does"},
	} {
		stdout, stderr, end := runHere(t, "", strings.Split(c.args, " ")...)
		if stderr != "tinybroker: "+c.want+"\n" || stdout != "" || end.code != exitUsage {
			t.Errorf("%q: %d, %q, %q", c.args, end.code, stdout, stderr)
		}
	}
}

func TestTopFlags(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv("TINYBROKER_VIEW", "groups")
	t.Setenv("TINYBROKER_INTERVAL", "2s")
	a := &app{streams: &streams{}}
	var got *topOptions
	cmd := newTopCmd(a, func(_ context.Context, o *topOptions) error {
		got = o
		return nil
	})
	root := testRoot()
	root.AddCommand(cmd)
	root.PersistentPreRunE = nil
	cmd.PreRunE = nil
	a.config, _ = loadConfig(cmd.Flags(), nil)
	cmd.SetArgs(nil)
	if err := cmd.RunE(cmd, nil); err != nil {
		t.Fatal(err)
	}
	if got.viewName != "groups" || got.interval != 2*time.Second || got.limit != 1000 || got.output != "table" {
		t.Errorf("%+v", got)
	}
}

func TestTopUnreachable(t *testing.T) {
	cleanEnvironment(t)
	for _, args := range [][]string{{"top", "--once"}, {"top", "--batch"}, {"ls", "topics"}} {
		stdout, stderr, end := runHere(t, "", append(args, "-s", "127.0.0.1:1")...)
		if end.code != exitUnavailable || stdout != "" || !strings.HasPrefix(stderr, "tinybroker: cannot reach broker at 127.0.0.1:1: connection refused. ") {
			t.Errorf("%q: %d, %q, %q", args, end.code, stdout, stderr)
		}
	}
}
