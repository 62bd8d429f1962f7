//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// inGroup makes a command the head of a process group of its own: Ctrl-C in the terminal is for sub, which lets the command finish, and
// what the command has started can be ended with it.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminate asks a command's group to end.
func terminate(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

// kill ends a command's group.
func kill(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
