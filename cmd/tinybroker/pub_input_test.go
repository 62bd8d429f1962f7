package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// drain reads all records; a bad one shows as "!" and its text.
func drain(t *testing.T, r recordReader) (records []string, end error) {
	t.Helper()
	var number uint64
	for {
		rec, err := r.next()
		var bad *recordError
		switch {
		case errors.Is(err, io.EOF):
			return records, nil
		case errors.As(err, &bad):
			records = append(records, "!"+bad.Error())
			number = bad.number
		case err != nil:
			return records, err
		default:
			if rec.number <= number {
				t.Errorf("record %d comes after record %d", rec.number, number)
			}
			number = rec.number
			records = append(records, string(rec.data))
		}
	}
}

func TestDelimited(t *testing.T) {
	for _, c := range []struct {
		name, in string
		d        delimited
		want     []string
	}{
		{"two lines, last without end", "a\nb", delimited{}, []string{"a", "b"}},
		{"empty line between", "a\n\nb\n", delimited{}, []string{"a", "", "b"}},
		{"CRLF is kept", "a\r\nb\r\n", delimited{}, []string{"a\r", "b\r"}},
		{"CRLF taken off", "a\r\nb\r\n\r\nc", delimited{crlf: true}, []string{"a", "b", "", "c"}},
		{"one CR only", "a\r\r\n", delimited{crlf: true}, []string{"a\r"}},
		{"a CR at the end of the input is data", "a\r", delimited{crlf: true}, []string{"a\r"}},
		{"nothing", "", delimited{}, nil},
		{"one line end", "\n", delimited{}, []string{""}},
		{"two line ends", "\n\n", delimited{}, []string{"", ""}},
		{"skip empty", "\n\na\n\n", delimited{skipEmpty: true}, []string{"a"}},
		{"skip lines empty but for CR", "\r\na\r\n", delimited{crlf: true, skipEmpty: true}, []string{"a"}},
		{"zero bytes", "a\x00b\nc\x00", delimited{delimiter: []byte{0}}, []string{"a", "b\nc"}},
		{"long delimiter", "a--b-c---d", delimited{delimiter: []byte("--")}, []string{"a", "b-c", "-d"}},
		{"delimiter that overlaps itself", "aabaab", delimited{delimiter: []byte("aab")}, []string{"", ""}},
		{"at the limit", "12345\nb\n", delimited{limit: 5}, []string{"12345", "b"}},
		{"over the limit by one", "123456\nb\n", delimited{limit: 5}, []string{"!6 B is over the limit of 5 B for one record", "b"}},
		{"over the limit, last without end", "b\n123456", delimited{limit: 5}, []string{"b", "!6 B is over the limit of 5 B for one record"}},
		{"over the limit, long delimiter", "123456--b--", delimited{limit: 5, delimiter: []byte("--")}, []string{"!6 B is over the limit of 5 B for one record", "b"}},
		{"over the limit, half a delimiter at the end", "123456789-", delimited{limit: 5, delimiter: []byte("--")}, []string{"!is over the limit of 5 B for one record"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.d.delimiter == nil {
				c.d.delimiter = []byte{'\n'}
			}
			if c.d.limit == 0 {
				c.d.limit = 100
			}
			for _, how := range []struct {
				name string
				r    io.Reader
			}{
				{"whole", strings.NewReader(c.in)},
				{"byte by byte", iotest.OneByteReader(strings.NewReader(c.in))},
				{"with EOF at once", iotest.DataErrReader(strings.NewReader(c.in))},
			} {
				d := c.d
				d.buf = buffer{r: how.r}
				got, err := drain(t, &d)
				if err != nil || !slices.Equal(got, c.want) {
					t.Errorf("%s: %q, %v; want %q", how.name, got, err, c.want)
				}
			}
		})
	}
}

// Lines around every size at which readers have cut them before arrive whole.
func TestLongLines(t *testing.T) {
	var in bytes.Buffer
	var want []string
	for _, n := range []int{1, 1023, 1024, 1025, 4095, 4097, 65535, 65536, 65537, readSize - 1, readSize, readSize + 1, 1 << 20, 1<<20 + 1, 9 << 20} {
		line := strings.Repeat(fmt.Sprintf("%d,", n), n)[:n]
		want = append(want, line, "short")
		in.WriteString(line + "\nshort\n")
	}
	got, err := drain(t, &delimited{buf: buffer{r: &in}, delimiter: []byte("\n"), limit: maxRecord})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d records, %v; want %d equal ones", len(got), err, len(want))
	}
}

// What is too long is neither kept in memory nor takes what follows with it.
func TestHugeLineIsNotKept(t *testing.T) {
	const huge = 300 << 20
	in := io.MultiReader(io.LimitReader(zeros{}, huge), strings.NewReader("\nnext\n"))
	d := &delimited{buf: buffer{r: in}, delimiter: []byte("\n"), limit: 1 << 20}
	got, err := drain(t, d)
	want := []string{"!is over the limit of 1 MiB for one record", "next"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if len(d.buf.data) > 8<<20 {
		t.Errorf("the buffer has grown to %d bytes", len(d.buf.data))
	}
}

// A record that never ends is reported as soon as it is known to be over the limit, whether something after it is wanted or not.
func TestEndlessRecord(t *testing.T) {
	for name, r := range map[string]recordReader{
		"line":  &delimited{buf: buffer{r: zeros{}}, delimiter: []byte("\n"), limit: 1 << 20, stop: true},
		"lines": &delimited{buf: buffer{r: zeros{}}, delimiter: []byte("\n"), limit: 1 << 20},
		"whole": &wholeInput{buf: buffer{r: zeros{}}, limit: 1 << 20},
	} {
		_, err := r.next()
		if _, ok := errors.AsType[*recordError](err); !ok || err.Error() != "is over the limit of 1 MiB for one record" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A regular file tells its size without being read to the end, also from where somebody else has begun to read it.
func TestTooLargeFileTellsItsSize(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(300 << 20); err != nil {
		t.Fatal(err)
	}
	for start, want := range map[int64]string{
		0:                         "!315 MB is over the limit of 1 MiB for one record",
		100 << 20:                 "!210 MB is over the limit of 1 MiB for one record",
		300<<20 - 1<<20 - 100_000: "!1.1 MB is over the limit of 1 MiB for one record",
	} {
		if _, err := f.Seek(start, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got, err := drain(t, &wholeInput{buf: buffer{r: f}, limit: 1 << 20})
		if err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("from %d: %q, %v; want %q", start, got, err, want)
		}
		if at, _ := f.Seek(0, io.SeekCurrent); at-start > 8<<20 {
			t.Errorf("from %d: %d bytes were read", start, at-start)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A line is there as soon as it was written, though the input goes on.
func TestLineIsNotHeldBack(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	d := &delimited{buf: buffer{r: r}, delimiter: []byte("\n"), limit: 100}
	go w.Write([]byte("one\nhalf"))
	rec, err := d.next()
	if err != nil || string(rec.data) != "one" {
		t.Fatalf("%q, %v", rec.data, err)
	}
	go func() {
		w.Write([]byte(" and half\n"))
		w.Close()
	}()
	if rec, err = d.next(); err != nil || string(rec.data) != "half and half" {
		t.Fatalf("%q, %v", rec.data, err)
	}
	if _, err := d.next(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func TestReadErrorIsNotTheEnd(t *testing.T) {
	in := io.MultiReader(strings.NewReader("whole\nhalf"), iotest.ErrReader(errors.New("input/output error")))
	for name, r := range map[string]recordReader{
		"line":  &delimited{buf: buffer{r: in}, delimiter: []byte("\n"), limit: 100},
		"whole": &wholeInput{buf: buffer{r: iotest.ErrReader(errors.New("input/output error"))}, limit: 100},
		"len":   &prefixed{buf: buffer{r: iotest.ErrReader(errors.New("input/output error"))}, limit: 100},
	} {
		got, err := drain(t, r)
		if codeOf(err) != exitNoInput || !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if slices.Contains(got, "half") {
			t.Errorf("%s: a record that was not read whole is published", name)
		}
	}
}

func TestWholeInput(t *testing.T) {
	for in, want := range map[string][]string{"": {""}, "a\nb\n": {"a\nb\n"}, "123456": {"123456"}, "1234567": {"!is over the limit of 6 B for one record"}} {
		got, err := drain(t, &wholeInput{buf: buffer{r: iotest.HalfReader(strings.NewReader(in))}, limit: 6})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestPrefixed(t *testing.T) {
	frame := func(s string) string { return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s }
	for _, c := range []struct {
		name, in string
		want     []string
		wantErr  string
	}{
		{"nothing", "", nil, ""},
		{"empty and not", frame("") + frame("a\nb") + frame(""), []string{"", "a\nb", ""}, ""},
		{"cut in the prefix", frame("a") + "\x00\x00", []string{"a"}, "record 2: the input ends in the middle of it (2 of 4 bytes)"},
		{"cut in the record", frame("a") + "\x00\x00\x00\x05abc", []string{"a"}, "record 2: the input ends in the middle of it (7 of 9 bytes)"},
		{"text by mistake", "hello world\n", nil, "record 1: its length prefix says 1.8 GB; the input is not in len framing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := drain(t, &prefixed{buf: buffer{r: iotest.OneByteReader(strings.NewReader(c.in))}, limit: 100})
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if c.wantErr == "" && err != nil || c.wantErr != "" && (codeOf(err) != exitInput || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("error %v, want %q", err, c.wantErr)
			}
		})
	}
}

// Random records, random framing, random pieces read: out comes what went in.
func TestFramingsAgree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var records []string
		var lines, framed bytes.Buffer
		for range rnd.IntN(50) {
			b := make([]byte, rnd.IntN(1<<rnd.IntN(14)))
			for i := range b {
				if b[i] = byte(rnd.Uint32()); b[i] == '\n' {
					b[i] = ' '
				}
			}
			records = append(records, string(b))
			lines.WriteString(string(b) + "\n")
			framed.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
			framed.Write(b)
		}
		pieces := func(r io.Reader) io.Reader { return &pieceReader{r, rnd} }
		for name, r := range map[string]recordReader{
			"line": &delimited{buf: buffer{r: pieces(&lines)}, delimiter: []byte("\n"), limit: maxRecord},
			"len":  &prefixed{buf: buffer{r: pieces(&framed)}, limit: maxRecord},
		} {
			if got, err := drain(t, r); err != nil || !slices.Equal(got, records) {
				t.Fatalf("%s: %d records, %v; want %d equal ones", name, len(got), err, len(records))
			}
		}
	}
}

// pieceReader reads pieces of random length.
type pieceReader struct {
	r   io.Reader
	rnd *rand.Rand
}

func (p *pieceReader) Read(b []byte) (int, error) { return p.r.Read(b[:1+p.rnd.IntN(len(b))]) }
