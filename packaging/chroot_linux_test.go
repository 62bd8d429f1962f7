package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// nobody is the user that a service or a container is: one that owns nothing.
const nobody = 65532

// patience is how long a test waits for what should come at once.
const patience = 30 * time.Second

// inside prepares a program to run with root as its whole file system, as nobody, and with no environment but env.
func inside(t *testing.T, root string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append([]string{}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// service is a broker that runs inside a root.
type service struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  lockedBuffer
	done chan struct{}
	err  error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func startInside(t *testing.T, root string, env []string, args ...string) *service {
	t.Helper()
	s := &service{t: t, cmd: inside(t, root, env, args...), done: make(chan struct{})}
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.done
	})
	return s
}

var listening = regexp.MustCompile(`"msg":"listening on ([^"]+)"`)

// address is where the broker listens, as its log says.
func (s *service) address() string {
	s.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if m := listening.FindStringSubmatch(s.log.String()); m != nil {
			return m[1]
		}
		select {
		case <-s.done:
			s.t.Fatalf("it has ended: %v\n%s", s.err, s.log.String())
		default:
		}
	}
	s.t.Fatalf("it does not listen\n%s", s.log.String())
	return ""
}

// stop ends the broker as systemd does.
func (s *service) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.done:
	case <-time.After(patience):
		s.t.Fatalf("it does not stop\n%s", s.log.String())
	}
	if s.err != nil {
		s.t.Errorf("it ended with %v\n%s", s.err, s.log.String())
	}
}

// copyFile copies a program or library with its mode.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, to, readFile(t, from), info.Mode().Perm())
}

// paths lists every file and folder below root, but for those that begin with one of except.
func paths(t *testing.T, root string, except *regexp.Regexp) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if rel := "/" + path[min(len(root)+1, len(path)):]; rel != "/" && !except.MatchString(rel) {
			list = append(list, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
