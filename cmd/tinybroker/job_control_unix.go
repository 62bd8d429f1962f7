//go:build unix

package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/tui"
)

// jobControl stops the process as the terminal's ctrl+z does, and tells the screen when others have stopped it. A SIGTSTP from them has its
// default effect, at once: the runtime cannot give a signal that it has caught its default back, so ctrl+z would stop nothing any more.
type jobControl struct {
	signals    chan os.Signal
	resumes    chan struct{}
	suspending atomic.Bool
	goesOn     chan struct{} // after a stop by suspend
	done       chan struct{}
}

// watchJobControl makes the screen follow job control until the returned function is called. abort is called before a SIGQUIT ends the
// process, so that its stacks can be read.
func watchJobControl(o *tui.Options, abort func()) (stop func()) {
	j := &jobControl{
		signals: make(chan os.Signal, 4), resumes: make(chan struct{}, 1), goesOn: make(chan struct{}, 1), done: make(chan struct{}),
	}
	signal.Notify(j.signals, syscall.SIGCONT)
	if !signal.Ignored(syscall.SIGQUIT) {
		signal.Notify(j.signals, syscall.SIGQUIT)
	}
	go j.run(abort)
	o.Suspend, o.Resumes = j.suspend, j.resumes
	return func() {
		signal.Stop(j.signals)
		close(j.signals)
		<-j.done
	}
}

func (j *jobControl) run(abort func()) {
	defer close(j.done)
	for s := range j.signals {
		switch {
		case s == syscall.SIGQUIT:
			abort()
			ending{code: (&signalError{s}).code(), signal: s}.raise()
		case j.suspending.Load():
			offer(j.goesOn)
		default:
			offer(j.resumes)
		}
	}
}

// suspend stops the process group, and returns when it goes on. Where there is no shell to wake it up again, the system does not stop it,
// and it returns after a moment.
func (j *jobControl) suspend() {
	j.suspending.Store(true)
	defer j.suspending.Store(false)
	if syscall.Kill(0, syscall.SIGTSTP) != nil {
		return
	}
	select {
	case <-j.goesOn:
	case <-time.After(300 * time.Millisecond):
	}
}
