package main

import (
	"os"
	"slices"
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

// argumentsElsewhere are flags of other brokers' tools for what is an argument of pub and sub.
var argumentsElsewhere = map[string]bool{
	"topic": true, "subject": true, "channel": true, "pattern": true, "message": true, "payload": true, "t": true, "m": true,
}

// argumentHint is what to do about such a flag; empty: it is none of them.
func argumentHint(command, flag string) string {
	if !argumentsElsewhere[flag] {
		return ""
	}
	switch command {
	case "pub":
		return "topic and payload are arguments, as in: tinybroker pub deploy.rollout 'web 1.4.2'"
	case "sub":
		return "patterns are arguments, as in: tinybroker sub 'deploy.*'"
	}
	return ""
}

// foreignWildcard says how a pattern of another broker's is written here, where it is a topic like any other; empty: it is none.
func foreignWildcard(pattern string) string {
	separator := "."
	if strings.Contains(pattern, "/") {
		separator = "/"
	}
	segments, foreign := strings.Split(pattern, separator), false
	for i, segment := range segments {
		switch {
		case segment == "+":
			segments[i], foreign = "*", true
		case segment == "#", segment == ">" && i == len(segments)-1:
			segments[i], foreign = "**", true
		}
	}
	if !foreign {
		return ""
	}
	return strings.Join(segments, ".")
}

// commentHint is the advice where hasComment holds.
const commentHint = "this shell takes # for a word, as zsh does on its command line: leave out the comment"

// hasComment reports whether a comment, such as those in examples, has come as arguments.
func hasComment(args []string) bool { return slices.Contains(args, "#") }

// quotePatterns is the advice where expandedByShell holds.
const quotePatterns = "quote the pattern, as in 'deploy.*'"

// expandedByShell reports whether words look like what a shell has made of a pattern without quotes: each of them names
// something in the working directory, and not all of that are directories, which are called like topics now and then.
func expandedByShell(words []string) bool {
	files := false
	for _, word := range words {
		info, err := os.Lstat(word)
		if err != nil || strings.ContainsAny(word, "/\\") {
			return false
		}
		files = files || !info.IsDir()
	}
	return files
}
