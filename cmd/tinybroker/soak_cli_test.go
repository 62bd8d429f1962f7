//go:build unix

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// soakPrinter is a `tinybroker sub` whose output is appended to a file, that of its group or its own. Writes to a file that is
// open for appending come one after the other, so the file tells the order in which processes have printed.
type soakPrinter struct {
	s       *soak
	id      string
	address string
	args    []string
	file    *soakFile
	book    *soakBook // nil: broadcast

	*process
	stream  *soakStream
	stopped bool
}

// soakFile is what processes have printed and how much of it was read.
type soakFile struct {
	write *os.File
	read  *os.File

	mu      sync.Mutex
	rest    []byte
	streams map[string]*soakStream // by the name of a process
	torn    int                    // records that a kill has cut short
	epochs  []*soakEpoch           // broadcast only
	shared  []soakMark
}

const soakRecord = "\x1e"

func newSoakFile(s *soak, name string) *soakFile {
	path := filepath.Join(s.dir, name)
	write, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	read, err := os.Open(path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		write.Close()
		read.Close()
	})
	return &soakFile{write: write, read: read, streams: map[string]*soakStream{}}
}

// start starts the process, or the next one in its place.
func (p *soakPrinter) start() {
	p.s.processes++
	name := fmt.Sprintf("%s#%d", p.id, p.s.processes)
	p.stream = &soakStream{name: name}
	p.file.mu.Lock()
	p.file.streams[name] = p.stream
	p.file.mu.Unlock()
	args := []string{
		"sub", "soak.**", "-s", p.address, "--id", p.id, "--client-name", name, "--wait",
		"--format", soakRecord + name + "|{{.Seq}}|{{.Attempt}}|{{.Topic}}|{{.Key}}|{{.Payload}}",
	}
	p.process = start(p.s.t, append(args, p.args...), writing(p.file.write), p.s.tls.process)
	p.stopped = false
}

// spoil takes note that the process may not have acknowledged what it has printed.
func (p *soakPrinter) spoil() {
	if p.book != nil {
		p.book.mu.Lock()
		defer p.book.mu.Unlock()
	}
	p.stream.unclean = true
}

func (p *soakPrinter) replace(s syscall.Signal) {
	if s != syscall.SIGTERM {
		p.spoil()
	}
	p.signal(s)
	p.process.end()
	p.start()
}

// poll reads what was printed since.
func (p *soakPrinter) poll() {
	p.file.poll(p.s, p)
}

func (f *soakFile) poll(s *soak, p *soakPrinter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := make([]byte, 64<<10)
	for {
		n, err := f.read.Read(b)
		f.rest = append(f.rest, b[:n]...)
		if n == 0 || err != nil {
			break
		}
	}
	for {
		// The last record is complete once it has its line end.
		next := bytes.Index(f.rest[min(1, len(f.rest)):], []byte(soakRecord)) + 1
		end := bytes.HasSuffix(f.rest, []byte("\n"))
		if next == 0 && (!end || len(f.rest) == 0) {
			return
		}
		if next == 0 {
			next = len(f.rest)
		}
		record := string(f.rest[:next])
		f.rest = f.rest[next:]
		f.take(s, p, record)
	}
}

func (f *soakFile) take(s *soak, p *soakPrinter, record string) {
	whole, ended := strings.CutSuffix(strings.TrimPrefix(record, soakRecord), "\n")
	fields := strings.SplitN(whole, "|", 6)
	if !ended || len(fields) != 6 {
		f.torn++ // judged at the end: no more than processes were killed
		return
	}
	seq, _ := strconv.Atoi(fields[1])
	attempt, _ := strconv.Atoi(fields[2])
	topic, key, payload := fields[3], fields[4], fields[5]
	sender, n, err := readSoakText(topic, key, payload)
	stream := f.streams[fields[0]]
	if err != nil || stream == nil || seq == 0 {
		s.fault("%s printed %.200q: %v", p.id, record, err)
		return
	}
	if p.book != nil {
		p.book.write(soakHandling{sender: sender, n: n, key: key, attempt: attempt, stream: stream})
		return
	}
	if seq == 1 || len(f.epochs) == 0 {
		f.epochs = append(f.epochs, newSoakEpoch(stream.name, false))
	}
	e := f.epochs[len(f.epochs)-1]
	e.got[sender] = append(e.got[sender], n)
	if topic == soakSharedTopic {
		f.shared = append(f.shared, soakMark{sender, n})
	}
}

// hasCome reports whether the last number of every sender was printed.
func (p *soakPrinter) hasCome(last map[string]int) bool {
	p.poll()
	p.file.mu.Lock()
	defer p.file.mu.Unlock()
	return epochHas(p.file.epochs, last)
}

// closeRound hands out the round's notes of a broadcast subscription and begins new ones.
func (p *soakPrinter) closeRound(begun map[string]int) (epochs []*soakEpoch, shared []soakMark) {
	f := p.file
	f.mu.Lock()
	defer f.mu.Unlock()
	epochs, shared = f.epochs, f.shared
	fresh := newSoakEpoch(p.id, false)
	fresh.opened = begun
	f.epochs, f.shared = []*soakEpoch{fresh}, nil
	epochs[len(epochs)-1].open = true
	return epochs, shared
}

// renew makes what was spoilt count no longer, all being at rest.
func (p *soakPrinter) renew() {
	p.stream = &soakStream{name: p.stream.name}
	p.file.mu.Lock()
	defer p.file.mu.Unlock()
	maps.DeleteFunc(p.file.streams, func(name string, _ *soakStream) bool { return strings.HasPrefix(name, p.id+"#") })
	p.file.streams[p.stream.name] = p.stream
}
