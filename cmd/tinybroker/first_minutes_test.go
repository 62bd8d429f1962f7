//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What goes wrong in the first minutes says what is wrong, and what to do next.
func TestFirstMistakes(t *testing.T) {
	cleanEnvironment(t)
	address := freeAddress(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"publish", "x"}, exitUsage, "unknown command \"publish\"\nhint: did you mean tinybroker pub?"},
		{[]string{"subscribe"}, exitUsage, "unknown command \"subscribe\"\nhint: did you mean tinybroker sub?"},
		{[]string{"start"}, exitUsage, "unknown command \"start\"\nhint: did you mean tinybroker serve?"},
		{[]string{"serv"}, exitUsage, "unknown command \"serv\"\nhint: did you mean tinybroker serve?"},
		{[]string{"token", "nwe"}, exitUsage, "unknown command \"nwe\"\nhint: did you mean tinybroker token new?"},
		{[]string{"pub", "--topic", "a", "x"}, exitUsage, "unknown flag --topic\nhint: topic and payload are arguments, as in: tinybroker pub deploy.rollout 'web 1.4.2'"},
		{[]string{"pub", "-t", "a", "-m", "x"}, exitUsage, "unknown flag -t\nhint: topic and payload are arguments"},
		{[]string{"pub", "a", "-5"}, exitUsage, "unknown flag -5\nhint: a payload that begins with - goes after --"},
		{[]string{"sub", "-t", "a.*"}, exitUsage, "unknown flag -t\nhint: patterns are arguments, as in: tinybroker sub 'deploy.*'"},
		{[]string{"serve", "-t"}, exitUsage, "unknown flag -t\nhint: see tinybroker serve --help"},
		{[]string{"foo"}, exitUsage, "unknown command \"foo\"\nhint: see tinybroker --help\n"},
		{[]string{"topics"}, exitUsage, "unknown command \"topics\"\nhint: did you mean tinybroker ls?"},
		{[]string{"frobnicate"}, exitUsage, "unknown command \"frobnicate\"\nhint: see tinybroker --help"},

		{[]string{"-q", "status"}, exitUsage, "unknown flag -q\nhint: flags go behind the command, as in: tinybroker COMMAND -"},
		{[]string{"--wait", "pub", "x", "y"}, exitUsage, "unknown flag --wait\nhint: flags go behind the command, as in: tinybroker COMMAND -"},
		{[]string{"--listen", ":1"}, exitUsage, "unknown flag --listen\nhint: flags go behind the command, as in: tinybroker COMMAND --listen\n"},
		{[]string{"-v"}, exitUsage, "unknown flag -v\nhint: --version tells the version; "},
		{[]string{"-x"}, exitUsage, "unknown flag -x\nhint: flags go behind the command, as in: tinybroker COMMAND -x"},
		{[]string{"-z"}, exitUsage, "unknown flag -z\nhint: see tinybroker --help\n"},
		{[]string{"serve", "--lisen", "x"}, exitUsage, "unknown flag --lisen\nhint: did you mean --listen?"},
		{[]string{"serve", "--port", "7711"}, exitUsage, "unknown flag --port\nhint: did you mean --listen?"},
		{[]string{"pub", "--host", "h", "x", "y"}, exitUsage, "unknown flag --host\nhint: did you mean --server?"},
		{[]string{"sub", "--queue", "q", "x"}, exitUsage, "unknown flag --queue\nhint: did you mean --group?"},
		{[]string{"serve", "127.0.0.1:7711"}, exitUsage, "serve: takes no arguments, got \"127.0.0.1:7711\"\nhint: an address goes after --listen"},
		{[]string{"serve", "--listen", "7711"}, exitConfig, `listen: "7711" is not host:port or unix:///path; write 127.0.0.1:7711`},
		{[]string{"serve", "--listen", "::1"}, exitConfig, `listen: "::1" is not host:port or unix:///path; write [::1]:7710`},
		{[]string{"bench", "--group", "a.b"}, exitUsage, `bench: --group: group name "a.b": character '.' at byte 2`},
		{[]string{"serve", "--listen", "localhost"}, exitConfig, `listen: "localhost" is not host:port or unix:///path; write localhost:7710`},
		{[]string{"serve", "--listen", "192.0.2.1:7710", "--insecure"}, exitUnavailable,
			"assign requested address\nhint: no network interface of this machine has that address"},

		{[]string{"serve", "--send-timeout", "soon"}, exitUsage, `--send-timeout: "soon" is not a duration such as 500ms, 5s or 1m30s`},
		{[]string{"serve", "--send-timeout", "5"}, exitUsage, `--send-timeout: "5" has no unit: write 5s for seconds`},
		{[]string{"serve", "--max-memory", "lots"}, exitUsage, `--max-memory: "lots" is not a size such as 65536, 512KiB, 1MiB or 1MB`},
		{[]string{"serve", "--config", "missing.yaml"}, exitConfig, "configuration file missing.yaml: no such file or directory\n" +
			"hint: --config none does without one; tinybroker serve --config none --print-config prints one to begin with"},

		{[]string{"pub", "x", "y", "-s", address}, exitUnavailable,
			"cannot reach broker at " + address + ": connection refused. Start one with: tinybroker serve --listen " + address},
		{[]string{"status", "-s", socket}, exitUnavailable,
			"cannot reach broker at " + socket + ": no such socket. Start one with: tinybroker serve --listen " + socket},
		{[]string{"status", "-s", "broker.invalid"}, exitUnavailable, "cannot reach broker at broker.invalid: no such host"},
		{[]string{"status", "-s", "amqp://localhost"}, exitUsage, `unknown scheme "amqp"; use host:port, unix:///path or dns:///host:port`},

		{[]string{"pub"}, exitUsage, "pub: needs a TOPIC\nhint: as in: tinybroker pub deploy.rollout 'web 1.4.2'"},
		{[]string{"pub", "a", "b", "c"}, exitUsage, "pub: takes TOPIC and PAYLOAD, got 3 arguments\nhint: quote a payload that holds spaces"},
		{[]string{"pub", "deploy.*", "x"}, exitUsage, "pub: invalid topic \"deploy.*\": character '*' at byte 8\n" +
			"hint: a topic is words with dots between them, such as deploy.rollout; patterns are for sub"},
		{[]string{"pub", "a..b", "x"}, exitUsage, "segment 2 is empty\nhint: a topic is words"},
		{[]string{"pub", "a", "b", "#", "the", "message"}, exitUsage, "pub: takes TOPIC and PAYLOAD, got 5 arguments\nhint: this shell takes # for a word"},
		{[]string{"serve", "#", "the", "broker"}, exitUsage, "serve: takes no arguments, got \"#\"\nhint: this shell takes # for a word"},
		{[]string{"sub"}, exitUsage, "sub: needs a PATTERN; '**' matches every topic"},
		{[]string{"sub", "a.**b"}, exitUsage, "sub: invalid pattern \"a.**b\": ** must be a whole segment\n" +
			"hint: patterns are like orders.created, orders.*, orders.**, orders.{eu,us}; see tinybroker sub --help"},
		{[]string{"sub", "x", "--format", "{{.Foo}}"}, exitInput, "--format: 1:2: <.Foo>: can't evaluate field Foo\n" +
			"hint: as in --format '{{.Topic}} {{.Payload}}'; tinybroker sub --help names all that it knows"},
		{[]string{"ls"}, exitUsage, "ls: needs one of topics, subs, groups, members, evictions"},
		{[]string{"ls", "topic"}, exitUsage, "hint: did you mean tinybroker ls topics?"},
	} {
		stdout, stderr, end := runHere(t, "", c.args...)
		if stdout != "" || end.code != c.code || !strings.Contains(stderr, c.want) || !strings.HasPrefix(stderr, "tinybroker: ") {
			t.Errorf("%q: %d, %q\nwant %d, %q", c.args, end.code, stderr, c.code, c.want)
		}
	}
}

// freeAddress is one where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The words of other brokers lead to something that exists.
func TestElsewhere(t *testing.T) {
	root := testRoot()
	for word, here := range commandsElsewhere {
		if c, _, err := root.Find([]string{here}); err != nil || c == root {
			t.Errorf("%s: there is no command %s", word, here)
		}
		if c, _, _ := root.Find([]string{word}); c != root {
			t.Errorf("%s is a command here", word)
		}
	}
	for _, c := range []string{"pub", "sub"} {
		cmd, _, err := root.Find([]string{c})
		if err != nil {
			t.Fatal(err)
		}
		for word := range argumentsElsewhere {
			if cmd.Flags().Lookup(word) != nil || len(word) == 1 && cmd.Flags().ShorthandLookup(word) != nil {
				t.Errorf("%s is a flag of %s", word, c)
			}
		}
	}
	for word, flags := range flagsElsewhere {
		for _, here := range flags {
			found := false
			for _, c := range ownCommands() {
				found = found || c.Flags().Lookup(here) != nil
			}
			if !found {
				t.Errorf("%s: there is no flag --%s", word, here)
			}
		}
	}
}

// Whoever writes the wildcards of another broker is told, since nothing would ever arrive.
func TestForeignWildcards(t *testing.T) {
	for pattern, want := range map[string]string{
		"orders.>": "orders.**", ">": "**", "orders/#": "orders.**", "#": "**", "a/b/#": "a.b.**", "orders.#": "orders.**",
		"orders/+": "orders.*", "+/status": "*.status", "home/+/lamp/#": "home.*.lamp.**", "*.#.error": "*.**.error", "orders.+": "orders.*",
		"orders.**": "", "orders.*": "", "a>b": "", "a.#b": "", "a+b": "", "a.>.b": "", "orders/*": "",
	} {
		if got := foreignWildcard(pattern); got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// Without quotes a shell makes of a pattern the names of files, and nothing would ever arrive, without a word.
func TestExpandedPatternIsTold(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"deploy.a", "deploy.b"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"jobs", "logs"} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b := startBroker(t)
	b.sub([]string{"deploy.a", "deploy.b"}).says(
		"deploy.a: also the name of a file here; if the shell has made that of a pattern, quote the pattern, as in 'deploy.*'\n")
	if !expandedByShell([]string{"deploy.a", "deploy.b", "jobs", "logs"}) {
		t.Error("all that * stands for here is not taken for names of files")
	}
	for _, words := range [][]string{{"jobs"}, {"jobs", "logs"}, {"deploy.a", "deploy.c"}, {"deploy.*"}, {"jobs/../deploy.a"}, nil} {
		if expandedByShell(words) {
			t.Errorf("%q is taken for names of files", words)
		}
	}
	if err := os.WriteFile("my notes", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, end := runHere(t, "", "sub", "deploy.a", "my notes")
	if want := "white space at byte 3\nhint: quote the pattern, as in 'deploy.*'"; end.code != exitUsage || !strings.Contains(stderr, want) {
		t.Errorf("a name that no pattern has: %d, %q, want %q", end.code, stderr, want)
	}
}

func TestForeignWildcardIsTold(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"orders.>"})
	sub.says("orders.> is one topic here, and no wildcard; write 'orders.**'\n")
	b.sub([]string{"deploy.*", "#", "all", "of", "them"}).says("# and what is behind it are patterns, too; this shell takes # for a word")
	quiet := b.sub([]string{"orders.>", "-q"})
	b.pub("", "orders.>", "x")
	quiet.printed("x\n")
	if got := quiet.stderr.String(); got != "" {
		t.Errorf("-q says %q", got)
	}
}
