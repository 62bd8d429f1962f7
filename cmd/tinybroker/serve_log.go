package main

import (
	"fmt"
	"io"
	"log/slog"
)

func (o *serveOptions) textLog(w io.Writer) bool {
	if l, ok := w.(*logWriter); ok {
		w = l.to
	}
	return o.logFormat == "text" || o.logFormat == "auto" && isTerminal(w)
}

// newLogger returns serve's log, whose level may be changed while it is in use.
func newLogger(o *serveOptions, w io.Writer, level *slog.LevelVar) *slog.Logger {
	setLevel(level, o.logLevel)
	return slog.New(newHandler(o, w, level))
}

func setLevel(level *slog.LevelVar, name string) {
	if err := level.UnmarshalText([]byte(name)); err != nil {
		level.Set(slog.LevelInfo) // not reached: the setting is one of the four names
	}
}

func newHandler(o *serveOptions, w io.Writer, level slog.Leveler) slog.Handler {
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
