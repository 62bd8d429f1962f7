package main

import (
	"os"
	"time"

	"golang.org/x/term"
)

// terminalState is how a terminal was before a screen was drawn on it.
type terminalState struct {
	in, out *os.File
	modes   *term.State
}

func saveTerminal(in, out *os.File) (*terminalState, error) {
	modes, err := term.GetState(int(in.Fd()))
	if err != nil {
		return nil, err
	}
	return &terminalState{in, out, modes}, nil
}

// restorePatience is how long a terminal has to take what gives it back: one that takes nothing shall not keep the process.
const restorePatience = 100 * time.Millisecond

// restore is for the end of a process that has no time to leave its screen in order.
func (t *terminalState) restore() {
	within(restorePatience, func() {
		// Nothing can be done about a failure.
		_ = term.Restore(int(t.in.Fd()), t.modes)
		// No bracketed paste, the cursor, and the screen that was there before.
		_, _ = t.out.WriteString("\x1b[?2004l\x1b[?25h\x1b[?1049l")
	})
}
