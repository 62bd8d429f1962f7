package main

import (
	"os"
	"strings"
)

// What people who come from other brokers type, and what it is here.

var commandsElsewhere = map[string]string{
	"publish": "pub", "produce": "pub", "send": "pub", "emit": "pub",
	"subscribe": "sub", "consume": "sub", "receive": "sub", "listen": "sub", "tail": "sub",
	"start": "serve", "run": "serve", "server": "serve", "broker": "serve", "daemon": "serve",
	"list": "ls", "topics": "ls", "groups": "ls", "monitor": "top", "watch": "top", "info": "status", "ping": "status", "health": "status",
	"benchmark": "bench", "perf": "bench",
}

// flagsElsewhere may be one thing for a broker and another for its clients.
var flagsElsewhere = map[string][]string{
	"port": {"listen", "server"}, "addr": {"listen", "server"}, "address": {"listen", "server"}, "bind": {"listen"},
	"host": {"listen", "server"}, "url": {"server"}, "broker": {"server"}, "bootstrap-server": {"server"}, "brokers": {"server"},
	"queue": {"group"}, "consumer-group": {"group"}, "number": {"count"}, "timeout": {"for", "connect-timeout"},
}

// foreignWildcard says how a pattern of another broker's is written here, where it is a topic like any other; empty: it is none.
func foreignWildcard(pattern string) string {
	switch {
	case strings.HasSuffix(pattern, ".>"):
		return strings.TrimSuffix(pattern, ">") + "**"
	case pattern == ">" || pattern == "#":
		return "**"
	case strings.HasSuffix(pattern, "/#"):
		return strings.ReplaceAll(strings.TrimSuffix(pattern, "#")+"**", "/", ".")
	case strings.HasSuffix(pattern, ".#"):
		return strings.TrimSuffix(pattern, "#") + "**"
	}
	return ""
}

// expandedByShell reports whether words look like what a shell has made of a pattern without quotes: each of them names
// a file of the working directory.
func expandedByShell(words []string) bool {
	for _, word := range words {
		if info, err := os.Lstat(word); err != nil || info.IsDir() || strings.ContainsAny(word, "/\\") {
			return false
		}
	}
	return len(words) > 0
}
