//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// packageIndex is real text of tens of megabytes: the package index that apt keeps, or something like it. apt keeps it compressed
// or not, and has a tool to read it either way.
func packageIndex(t *testing.T) []byte {
	t.Helper()
	const enough, most = 8 << 20, 24 << 20
	files, _ := filepath.Glob("/var/lib/apt/lists/*_Packages*")
	var text []byte
	for _, path := range files {
		if len(text) > most {
			break
		}
		if out, err := exec.Command("/usr/lib/apt/apt-helper", "cat-file", path).Output(); err == nil {
			text = append(text, out...)
		}
	}
	if len(text) > most {
		text = text[:most+bytes.IndexByte(text[most:], '\n')+1]
	}
	if len(text) > enough {
		return text
	}
	t.Log("no package index on this machine: the text is made up")
	rnd := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for n := 0; b.Len() < 20<<20; n++ {
		fmt.Fprintf(&b, "Package: lib%x\nVersion: %d.%d-%d\nDescription: größe %s\n", rnd.Uint32(), rnd.IntN(20), rnd.IntN(20), n, strings.Repeat("wörd ", rnd.IntN(30)))
		if n%10 == 0 {
			b.WriteString("\n\t with\r tabs and \x00 bytes \xff\n\n")
		}
	}
	return b.Bytes()
}

// digest sums up what is written to it.
type digest struct {
	mu   sync.Mutex
	hash hash.Hash
	n    int64
}

func newDigest() *digest { return &digest{hash: sha256.New()} }

func (d *digest) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n += int64(len(p))
	return d.hash.Write(p)
}

func (d *digest) sum() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("%d bytes, %x", d.n, d.hash.Sum(nil))
}

func sumOf(data []byte) string {
	d := newDigest()
	d.Write(data)
	return d.sum()
}

// useFullSpeed puts a program without the race detector on the PATH, if this test binary has it: so much data would take
// minutes otherwise. The test must not be parallel.
func useFullSpeed(t *testing.T) {
	t.Helper()
	if !raceEnabled {
		return
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, ".").CombinedOutput(); err != nil {
		t.Skipf("go build: %v\n%s", err, out)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// Real text through one broker to three subscribers at once, and by JSON into a second broker: every byte the same.
func TestRealText(t *testing.T) {
	text := packageIndex(t)
	if text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	lines := strconv.Itoa(bytes.Count(text, []byte("\n")))
	useFullSpeed(t)
	first, second := startBroker(t), startBroker(t)
	var subs []*process
	var digests []*digest
	for range 3 {
		d := newDigest()
		digests = append(digests, d)
		subs = append(subs, first.sub([]string{"packages", "-n", lines}, writing(d)))
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d := newDigest()
	digests = append(digests, d)
	subs = append(subs,
		second.sub([]string{"copy", "-n", lines}, writing(d)),
		first.sub([]string{"packages", "-n", lines, "-o", "json"}, writing(w)),
		start(t, []string{"pub", "copy", "-i", "json", "-s", second.address}, reading(r)),
	)
	w.Close()
	r.Close()
	start(t, []string{"pub", "packages", "-s", first.address, "--max-wait", "30s"}, reading(bytes.NewReader(text))).ended(0)
	for _, p := range subs {
		p.ended(0)
	}
	for i, d := range digests {
		if got, want := d.sum(), sumOf(text); got != want {
			t.Errorf("subscriber %d: %s, want %s", i+1, got, want)
		}
	}
	t.Logf("%s lines, %d bytes", lines, len(text))
}

// Binary records of all lengths through -i len and -o len.
func TestRealBinary(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	var framed bytes.Buffer
	records := 0
	add := func(record []byte) {
		framed.Write(binary.BigEndian.AppendUint32(nil, uint32(len(record))))
		framed.Write(record)
		records++
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, record := range [][]byte{all, nil, {0}, {'\n'}, []byte("\x00middle\x00end\x00"), {0xff, 0xfe}} {
		add(record)
	}
	for _, n := range []int{1<<20 - 1, 70_000, 65_536} {
		record := make([]byte, n)
		for i := range record {
			record[i] = byte(rnd.Uint32())
		}
		add(record)
	}
	for framed.Len() < 8<<20 {
		record := make([]byte, rnd.IntN(1<<rnd.IntN(16)))
		for i := range record {
			record[i] = byte(rnd.Uint32())
		}
		add(record)
	}
	b := startBroker(t)
	d, viaJSON := newDigest(), newDigest()
	sub := b.sub([]string{"x", "-o", "len", "-n", strconv.Itoa(records)}, writing(d))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	copied := b.sub([]string{"y", "-o", "len", "-n", strconv.Itoa(records)}, writing(viaJSON))
	lines := b.sub([]string{"x", "-o", "json", "-n", strconv.Itoa(records)}, writing(w))
	again := start(t, []string{"pub", "y", "-i", "json", "-s", b.address}, reading(r))
	w.Close()
	r.Close()
	start(t, []string{"pub", "x", "-i", "len", "-s", b.address, "--max-wait", "30s"}, reading(bytes.NewReader(framed.Bytes()))).ended(0)
	for _, p := range []*process{sub, lines, again, copied} {
		p.ended(0)
	}
	for name, got := range map[string]string{"len": d.sum(), "json": viaJSON.sum()} {
		if want := sumOf(framed.Bytes()); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// Numbered lines over two topics: one subscriber of both sees all, in the order in which they were published.
func TestOrderOverTwoTopics(t *testing.T) {
	t.Parallel()
	const total = 200_000
	b := startBroker(t)
	var lines, want strings.Builder
	for n := range total {
		topic := "n.odd"
		if n%3 == 0 {
			topic = "n.third"
		}
		fmt.Fprintf(&lines, `{"topic":"%s","data":"%d"}`+"\n", topic, n)
		fmt.Fprintf(&want, "%s %d\n", topic, n)
	}
	d := newDigest()
	sub := b.sub([]string{"n.*", "-n", strconv.Itoa(total), "--format", "{{.Topic}} {{.Payload}}"}, writing(d))
	start(t, []string{"pub", "-i", "json", "-s", b.address, "--max-wait", "30s"}, reading(strings.NewReader(lines.String()))).ended(0)
	sub.ended(0)
	if got := d.sum(); got != sumOf([]byte(want.String())) {
		t.Errorf("%s differs", got)
	}
}

// `tail -f` of a log: each line comes when it is written.
func TestTail(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	log := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	tail := exec.Command("tail", "-f", log)
	tail.Stdout = w
	if err := tail.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		tail.Process.Kill()
		tail.Wait()
	}()
	sub := b.sub([]string{"logs.app"})
	start(t, []string{"pub", "logs.app", "-s", b.address}, reading(r))
	w.Close()
	r.Close()
	want := ""
	for n := range 5 {
		line := fmt.Sprintf("line %d\n", n)
		want += line
		f.WriteString(line)
		sub.printed(want)
	}
}
