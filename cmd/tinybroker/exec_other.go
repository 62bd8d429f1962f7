//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// inGroup does nothing here: there are no process groups.
func inGroup(*exec.Cmd) {}

// terminate ends a command.
func terminate(pid int) error { return kill(pid) }

// kill ends a command.
func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
