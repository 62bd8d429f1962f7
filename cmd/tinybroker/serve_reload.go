package main

import (
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// A reload takes over what may change while the broker runs: SIGHUP asks for it. Every part is prepared first, which reads
// and checks its files. Only when none of them has anything to object to are they committed. So a bad file is refused
// whole, and the broker goes on as before.

// reloadable is a part of a reload.
type reloadable struct {
	// name is what the log says has changed: a setting, as the file names it.
	name string
	// prepare reads and checks. It changes nothing. commit puts what was read in force and cannot fail; nil: it is in
	// force already.
	prepare func() (commit func(), err error)
}

// reloader does reloads, one at a time.
type reloader struct {
	log      *slog.Logger // writes whatever the log level: it answers whoever has sent the signal
	settings *liveSettings
	parts    []reloadable
	// stopping is closed when it is too late to change anything; nil: that never comes.
	stopping <-chan struct{}
}

// newReloader returns one for the settings that serve was started with, and for parts. It logs to w.
func newReloader(a *app, o *serveOptions, w io.Writer, level *slog.LevelVar, parts ...reloadable) *reloader {
	s := &liveSettings{flags: o.flags, live: map[string]func(string){
		"log-level": func(name string) { setLevel(level, name) },
	}}
	s.file = a.config.file
	return &reloader{log: slog.New(newHandler(o, w, slog.LevelInfo)), settings: s, parts: parts}
}

// reload does one, and writes one line about it. False: it was refused.
func (r *reloader) reload() bool {
	fresh, err := r.settings.read()
	var errs mistakes
	if err != nil {
		errs = append(errs, err)
	}
	var commits []func()
	var parts []string
	for _, p := range r.parts {
		commit, err := p.prepare()
		if err != nil {
			errs = append(errs, err)
		} else if commit != nil {
			commits, parts = append(commits, commit), append(parts, p.name)
		}
	}
	if len(errs) > 0 {
		r.log.Error("reload refused, everything stays as it was", "why", strings.Join(errorLines(errs), "; "))
		return false
	}
	select {
	case <-r.stopping:
		return false
	default:
	}
	changed := append(r.settings.commit(fresh), parts...)
	for _, commit := range commits {
		commit()
	}
	r.log.Info("reloaded", "changed", changed)
	if names := r.settings.waiting(fresh); len(names) > 0 {
		r.log.Warn("settings have changed that take effect at the next start", "settings", names)
	}
	return true
}

// liveSettings are the settings in force, in a broker that runs.
type liveSettings struct {
	// flags are those serve was started with; what the command line gave them stays.
	flags *pflag.FlagSet
	// file is the configuration file that was read at the start; nil: there was none.
	file *configFile
	// live are the settings that a reload can change, by flag name.
	live map[string]func(value string)
}

// read reads the settings anew, and checks them as at a start. A file that was there at the start must still be. What a pipe has said cannot
// be read again, and stays.
func (s *liveSettings) read() (*pflag.FlagSet, error) {
	o := newServeOptions()
	fresh := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.addFlags(fresh)
	var errs mistakes
	s.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && fresh.Lookup(f.Name) != nil {
			if err := fresh.Set(f.Name, f.Value.String()); err != nil {
				errs = append(errs, err) // not reached: a value prints itself in a form that it reads
			}
		}
	})
	if s.file != nil {
		if err := fresh.Set("config", s.file.path); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	var err error
	if s.file != nil && !s.file.stays {
		_, err = applyConfig(fresh, s.file, nil)
	} else {
		_, err = loadConfig(fresh, nil)
	}
	if err != nil {
		return nil, err
	}
	return fresh, o.validate()
}

// commit puts the live settings in force and returns the names of those that have changed.
func (s *liveSettings) commit(fresh *pflag.FlagSet) []string {
	changed := []string{}
	for name, set := range s.live {
		old, value := s.flags.Lookup(name), fresh.Lookup(name).Value.String()
		if old.Value.String() == value {
			continue
		}
		if err := old.Value.Set(value); err != nil {
			continue // not reached, as above
		}
		set(value)
		changed = append(changed, fileKey(name))
	}
	slices.Sort(changed)
	return changed
}

// waiting names the settings that differ from what is in force.
func (s *liveSettings) waiting(fresh *pflag.FlagSet) []string {
	var names []string
	fresh.VisitAll(func(f *pflag.Flag) {
		if sectionOf(f) == sectionServe && f.Value.String() != s.flags.Lookup(f.Name).Value.String() {
			names = append(names, fileKey(f.Name))
		}
	})
	return names
}

// watchHangups catches SIGHUP from now on until the process ends, also when it was started with the signal ignored, as nohup does.
// One that comes while the broker starts is kept until it has started; while it stops nobody listens, and the signal does nothing.
func watchHangups() <-chan os.Signal {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGHUP)
	return ch
}
