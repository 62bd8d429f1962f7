package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor is the service manager that has started the broker and wants to know how it is: systemd, or another that speaks
// its protocol (NOTIFY_SOCKET). Where there is none, every call does nothing.
type supervisor struct {
	log    *slog.Logger
	status string    // what `systemctl status` shows
	once   sync.Once // a manager that cannot be told is mentioned once
}

// ready says that clients can connect.
func (s *supervisor) ready(listeners []net.Listener) {
	addresses := make([]string, len(listeners))
	for i, l := range listeners {
		addresses[i] = addressOf(l)
	}
	s.status = "listening on " + oneLine(strings.Join(addresses, ", "))
	s.tell(daemon.SdNotifyReady, "STATUS="+s.status)
}

// reloading says that a reload begins.
func (s *supervisor) reloading() {
	s.tell(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}

// reloaded says that it has ended. The manager has no word for one that was refused.
func (s *supervisor) reloaded(ok bool) {
	status := s.status
	if !ok {
		status += "; the last reload was refused, see the log"
	}
	s.tell(daemon.SdNotifyReady, "STATUS="+status)
}

// stopping says that the broker drains, which takes at most timeout.
func (s *supervisor) stopping(timeout time.Duration) {
	s.tell(daemon.SdNotifyStopping, "STATUS=draining", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (timeout+stopAllowance).Microseconds()))
}

// stopAllowance is what the end of the process may take beside the drain.
const stopAllowance = 5 * time.Second

func (s *supervisor) tell(assignments ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil {
		s.once.Do(func() { s.log.Warn("cannot tell the service manager", "error", err) })
	}
}

// watch says twice in each interval of the manager's watchdog that the broker works, for as long as alive returns, until stop
// is called. A manager without a watchdog hears nothing.
func (s *supervisor) watch(alive func()) (stop func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("no watchdog", "error", err)
	}
	if interval <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.keepSaying(ctx, interval/2, alive) })
	return func() {
		cancel()
		watching.Wait()
	}
}

func (s *supervisor) keepSaying(ctx context.Context, pause time.Duration, alive func()) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		alive()
		s.tell(daemon.SdNotifyWatchdog)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
