package main

import (
	"time"

	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// The settings of the broker itself are declared with core's own ranges, which it also checks when it is made otherwise.

func addWhole(fs *pflag.FlagSet, p *int, name, usage string) {
	r := core.OptionRange(fileKey(name))
	fs.Var(whole(p, int(r.Min), int(r.Max)), name, usage)
}

func addSize[T int | int64](fs *pflag.FlagSet, p *T, name, usage string) {
	r := core.OptionRange(fileKey(name))
	fs.Var(size(p, T(r.Min), T(r.Max)), name, usage)
}

func addSpan(fs *pflag.FlagSet, p *time.Duration, name, usage string) {
	r := core.OptionRange(fileKey(name))
	fs.Var(span(p, time.Duration(r.Min), time.Duration(r.Max)), name, usage)
}
