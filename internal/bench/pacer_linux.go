package bench

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// fileAlarm is an alarm of the kernel (timerfd_create(2)). Goroutines wait for it as for a socket.
type fileAlarm struct {
	file *os.File
	fd   int
	stop func() bool // of what ends a sleep with the context
}

func newAlarm(ctx context.Context) alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return newTimerAlarm(ctx) // a sandbox without them, or no file may be opened any more
	}
	a := &fileAlarm{file: os.NewFile(uintptr(fd), "timer"), fd: fd}
	a.stop = context.AfterFunc(ctx, func() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) })
	return a
}

func (a *fileAlarm) sleep(d time.Duration) error {
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(a.fd, 0, &once, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	var expirations [8]byte
	_, err := a.file.Read(expirations[:])
	return err
}

func (a *fileAlarm) close() {
	a.stop()
	_ = a.file.Close()
}
