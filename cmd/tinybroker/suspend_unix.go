//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// suspend stops the process group as the terminal's ctrl+z does, and returns when it goes on. Where there is no shell to wake it up
// again, the system does not stop it, and it returns after a moment.
var suspend = func() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if syscall.Kill(0, syscall.SIGTSTP) != nil {
		return
	}
	select {
	case <-goesOn:
	case <-time.After(300 * time.Millisecond):
	}
}
