package main

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

const (
	// execMarker is set for commands of sub --exec.
	execMarker = envPrefix + "EXEC"
	// envHeader begins the variables that hold one header each.
	envHeader = envPrefix + "HEADER_"
	// maxMessageEnv bounds what describes a message in the environment, in bytes. The system has a limit of its own, past which no
	// program can be started; a publisher shall not reach it with a large header.
	maxMessageEnv = 96 << 10
)

// The variables that describe the message, without the prefix. Some are also names of settings, so that what a command starts does
// not take them for that: see inEnvironment.
var messageVariables = []string{"TOPIC", "KEY", "SEQ", "ATTEMPT", "GROUP", "TIME", "HEADERS"}

func isMessageVariable(name string) bool {
	return strings.HasPrefix(name, envHeader) || slices.Contains(messageVariables, strings.TrimPrefix(name, envPrefix))
}

// messageEnv is the environment of a command: this process's own, and the message. complete is false when something was left out
// for its size.
func messageEnv(group string, d *rpc.Delivery) (env []string, complete bool) {
	e := environment{room: maxMessageEnv, complete: true}
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); name != execMarker && !isMessageVariable(name) {
			e.pairs = append(e.pairs, pair)
		}
	}
	e.pairs = append(e.pairs, execMarker+"=1")
	at := ""
	if !d.PublishTime.IsZero() {
		at = d.PublishTime.UTC().Format(time.RFC3339Nano)
	}
	for i, value := range []string{
		d.Topic, d.Key, strconv.FormatUint(d.Sequence, 10), strconv.FormatUint(uint64(d.Attempt), 10), group, at,
		string(appendJSONHeaders(nil, d.Headers)),
	} {
		e.add(envPrefix+messageVariables[i], value)
	}
	e.addHeaders(&d.Message)
	return e.pairs, e.complete
}

type environment struct {
	pairs    []string
	room     int
	complete bool
}

// add sets a variable, if there is room. A zero byte ends a variable's value, so that it is replaced.
func (e *environment) add(name, value string) {
	pair := name + "=" + strings.ReplaceAll(value, "\x00", "\uFFFD")
	if len(pair) > e.room {
		e.complete = false
		return
	}
	e.room -= len(pair)
	e.pairs = append(e.pairs, pair)
}

// addHeaders sets a variable for each header, and the first by name where several make the same variable.
func (e *environment) addHeaders(m *core.Message) {
	seen := map[string]bool{}
	for _, header := range slices.Sorted(maps.Keys(m.Headers)) {
		if name := headerVariable(header); !seen[name] {
			seen[name] = true
			e.add(name, m.Headers[header])
		}
	}
}

// headerVariable is the name of a header's variable: capitals, and _ for whatever is no letter or digit of ASCII. The prefix keeps it
// apart from variables that mean something to programs.
func headerVariable(header string) string {
	return envHeader + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, header)
}
