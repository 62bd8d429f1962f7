package main

import (
	"fmt"
	"io"
	"log/slog"
)

func (o *serveOptions) textLog(w io.Writer) bool {
	return o.logFormat == "text" || o.logFormat == "auto" && isTerminal(w)
}

func newLogger(o *serveOptions, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		level = slog.LevelInfo // not reached: the setting is one of the four names
	}
	return slog.New(newHandler(o, w, level))
}

func newHandler(o *serveOptions, w io.Writer, level slog.Level) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	if o.textLog(w) {
		return slog.NewTextHandler(w, options)
	}
	return slog.NewJSONHandler(w, options)
}

// announceAddress prints the one line of a start, whatever the log level: plain where a person reads, and as a line of
// the log where a program does.
func announceAddress(w io.Writer, o *serveOptions, address string) {
	text := "listening on " + address
	if o.textLog(w) {
		fmt.Fprintln(w, text)
		return
	}
	slog.New(newHandler(o, w, slog.LevelInfo)).Info(text, "address", address)
}
