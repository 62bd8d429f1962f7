//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// example is how one line of the examples in the help is tried. It is run by a shell as it stands, save for addresses.
type example struct {
	files   map[string]string
	stdin   string
	publish [][]string // what to publish once it has subscribed
	beside  string     // what else to run then
	stops   bool       // it goes on until it is told to stop
	screen  bool       // it needs a terminal: another test tries it
	stdout  string     // what it prints, or
	has     string     // a part of it
	sends   string     // what a subscriber of everything sees meanwhile
	busy    bool       // it sends too much to look at
}

var examples = map[string]example{
	"tinybroker serve": {stops: true},
	"tinybroker serve --listen 127.0.0.1:0 --listen unix:///tmp/tinybroker.sock --addr-file addr": {stops: true},
	"tinybroker serve --max-memory 1GiB --print-config":                                           {has: "max_memory: 1GiB # flag --max-memory\n"},

	"tinybroker pub deploy.rollout started":                                  {sends: "deploy.rollout started\n"},
	"tinybroker pub deploy.log < app.log":                                    {files: map[string]string{"app.log": "a\nb\n"}, sends: "deploy.log a\ndeploy.log b\n"},
	"tail -f app.log | tinybroker pub logs.app":                              {files: map[string]string{"app.log": "a\n"}, stops: true, sends: "logs.app a\n"},
	"tinybroker pub config.changed -f a.yaml -f b.yaml":                      {files: map[string]string{"a.yaml": "a", "b.yaml": "b"}, sends: "config.changed a\nconfig.changed b\n"},
	`printf 'alice:1\nbob:2\n' | tinybroker pub scores -K :`:                 {sends: "scores 1\nscores 2\n"},
	"tinybroker pub ticks 'tick {{.Seq}}' -T -n 5 -r 10":                     {sends: "ticks tick 1\nticks tick 2\nticks tick 3\nticks tick 4\nticks tick 5\n"},
	"tinybroker sub -o json '**' | tinybroker pub -i json -s 127.0.0.1:7711": {stops: true, publish: [][]string{{"a.b", "c"}}, sends: "a.b c\n"},

	"tinybroker sub 'deploy.**'":                  {stops: true, publish: [][]string{{"deploy.rollout", "x"}, {"other", "y"}}, stdout: "x\n", sends: "deploy.rollout x\nother y\n"},
	"tinybroker sub '**'":                         {stops: true, publish: [][]string{{"a", "x"}}, stdout: "x\n", sends: "a x\n"},
	"tinybroker sub deploy.rollout -n 1 --for 5s": {publish: [][]string{{"deploy.rollout", "x"}}, stdout: "x\n", sends: "deploy.rollout x\n"},
	"tinybroker sub 'logs.**' '!logs.debug.**' -o json": {stops: true, publish: [][]string{{"logs.debug.x", "no"}, {"logs.app", "yes"}},
		has: `"data":"yes"}`, sends: "logs.debug.x no\nlogs.app yes\n"},
	"tinybroker sub 'orders.*' --format '{{.Topic}}	{{.Payload}}'": {stops: true, publish: [][]string{{"orders.x", "y"}}, stdout: "orders.x\ty\n", sends: "orders.x y\n"},

	"tinybroker bench --embedded":                                  {has: "none: nothing lost"},
	"tinybroker bench --subs 20 --rate 1000 --duration 5s":         {has: "none: nothing lost", busy: true},
	"tinybroker bench --subs 4 --group work --msgs 100000 -o json": {has: `"delivered_messages":100000,`, busy: true},

	"tinybroker sub 'jobs.**' -g workers -x 'sh job.sh' --exec-parallel 4": {stops: true, files: map[string]string{"job.sh": "echo $TINYBROKER_TOPIC $TINYBROKER_ATTEMPT; cat\n"},
		publish: [][]string{{"jobs.a", "x"}}, stdout: "jobs.a 1\nx\n", sends: "jobs.a x\n"},
	"tinybroker sub 'jobs.**' -g workers -n 1": {publish: [][]string{{"jobs.a", "x"}}, stdout: "x\n", sends: "jobs.a x\n"},
	"tinybroker sub '$tb.dlq.*' -o json": {stops: true, beside: "tinybroker sub x -g g -x 'exit 65'", publish: [][]string{{"x", "y"}},
		has: `{"topic":"$tb.dlq.g",`, sends: "x y\n"},
	"tinybroker sub '$tb.event.**'":                               {stops: true, beside: "tinybroker sub x -g g", publish: [][]string{{"x", "y"}}, has: `{"group":"g"}`, sends: "x y\n"},
	"tinybroker top":                                              {screen: true},
	"tinybroker top --view subs --sort dropped":                   {screen: true},
	"tinybroker top --once -o json":                               {has: `{"schema_version":1,"time":"`},
	"tinybroker top --batch --interval 10s -o json >> broker.log": {stops: true},
	"tinybroker ls topics":                                        {has: "no topics"},
	"tinybroker ls subs --sort dropped --limit 10":                {has: "SUBSCRIPTION"},
	"tinybroker ls members --filter billing":                      {has: `nothing here contains "billing"`},
	"tinybroker ls evictions -o json":                             {has: `"evictions":[]}`},

	"tinybroker status":                         {has: "SERVING"},
	"tinybroker status -o json":                 {has: `"health":"SERVING"`},
	"tinybroker status -q --connect-timeout 1s": {},
	"tinybroker token new":                      {has: "token_hash: [sha256:"},
	"tinybroker token new --name billing --out billing.token >> auth.yaml": {},

	"tinybroker version":         {has: "tinybroker "},
	"tinybroker version -o json": {has: `"version":"`},
	"tinybroker help pub":        {has: "Publish PAYLOAD as one message"},
	"tinybroker help exit-codes": {has: "  124  --for or --idle"},
}

// Every example of the help runs, and does what it says.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	untried := map[string]bool{}
	for line := range examples {
		untried[line] = true
	}
	for _, c := range ownCommands() {
		for line := range strings.SplitSeq(c.Example, "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			e, known := examples[line]
			if !known {
				t.Errorf("%s: the example %q is not tried", c.CommandPath(), line)
				continue
			}
			if untried[line] {
				delete(untried, line)
				t.Run(line, func(t *testing.T) {
					t.Parallel()
					e.try(t, line)
				})
			}
		}
	}
	for line := range untried {
		t.Errorf("%q is in no help", line)
	}
}

func (e *example) try(t *testing.T, line string) {
	if e.screen {
		return
	}
	dir := t.TempDir()
	for name, text := range e.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := startBroker(t)
	watched := b
	if strings.Contains(line, "7711") {
		watched = startBroker(t)
	}
	everything := "**"
	if e.busy {
		everything = "nothing"
	}
	seen := watched.sub([]string{everything, "--format", "{{.Topic}} {{.Payload}}"})
	text := strings.NewReplacer("127.0.0.1:7711", watched.address, "/tmp/", dir+"/", "--duration 5s", "--duration 500ms").Replace(line)
	shell := start(t, nil, func(p *process) {
		p.cmd = exec.Command("sh", "-c", text)
		p.cmd.Dir = dir
		p.cmd.Env = testEnv(t, "TINYBROKER_SERVER="+b.address, "TINYBROKER_LISTEN=127.0.0.1:0",
			"TINYBROKER_WARMUP=100ms", "TINYBROKER_DURATION=500ms")
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p.cmd.Stdin = strings.NewReader(e.stdin)
		p.cmd.Stderr = &p.stderr
	})
	t.Cleanup(func() { syscall.Kill(-shell.cmd.Process.Pid, syscall.SIGKILL) })
	if len(e.publish) > 0 {
		subscribed := `"subscriptions":2,`
		if e.beside != "" {
			subscribed = `"subscriptions":3,`
			start(t, nil, func(p *process) {
				p.cmd = exec.Command("sh", "-c", "sleep 0.2; exec "+e.beside)
				p.cmd.Dir = dir
				p.cmd.Env = testEnv(t, "TINYBROKER_SERVER="+b.address)
			})
		}
		if watched != b {
			subscribed = `"subscriptions":1,`
		}
		eventually(t, "it has subscribed", func() bool { return strings.Contains(b.status(), subscribed) })
	}
	for _, args := range e.publish {
		b.pub("", args...)
	}
	if strings.Contains(line, "serve") && e.stops {
		shell.says("listening on ")
	}
	seen.printed(e.sends)
	if e.stdout != "" {
		shell.printed(e.stdout)
	}
	eventually(t, "prints "+e.has, func() bool { return strings.Contains(shell.stdout.String(), e.has) })
	if e.stops {
		syscall.Kill(-shell.cmd.Process.Pid, syscall.SIGTERM)
		shell.end()
		return
	}
	shell.ended(0)
}
