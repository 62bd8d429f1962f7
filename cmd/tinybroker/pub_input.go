package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxRecord bounds what is kept in memory of one input record. It is far above what a broker takes by default. What is longer is
// reported, and read past where records after it are wanted.
const maxRecord = 64 << 20

// record is one piece of input before it becomes a message.
type record struct {
	number uint64 // from 1, in its input
	data   []byte // without framing; valid until the next read
	raw    []byte // with framing, as it was read; valid until the next read
}

// recordError is what is wrong with one record; the ones after it can still be read.
type recordError struct {
	number uint64
	err    error
}

func (e *recordError) Error() string { return e.err.Error() }
func (e *recordError) Unwrap() error { return e.err }

// tooLargeError is a record that no broker would take. The size is 0 where the end of the record was not looked for: it may have
// none.
type tooLargeError struct{ size, limit int64 }

func (e *tooLargeError) Error() string {
	if e.size == 0 {
		return fmt.Sprintf("is over the limit of %s for one record", spacedSize(e.limit))
	}
	size, limit := sizeAndLimit(e.size, e.limit)
	return fmt.Sprintf("%s is over the limit of %s for one record", size, limit)
}

// recordReader cuts an input into records. next returns io.EOF at the end, a *recordError when it can go on after it,
// and any other error when it cannot. It returns a record as soon as all of it was read.
type recordReader interface {
	next() (record, error)
}

// buffer reads ahead whatever the input has ready, and never waits for more than is needed.
type buffer struct {
	r          io.Reader
	data       []byte
	start, end int
	err        error // of r; io.EOF included
}

const readSize = 128 << 10

func (b *buffer) unread() []byte { return b.data[b.start:b.end] }

// fill reads once, making room first. It reports false when the input has ended or failed.
func (b *buffer) fill() bool {
	if b.err != nil {
		return false
	}
	if b.start > 0 {
		b.end = copy(b.data, b.data[b.start:b.end])
		b.start = 0
	}
	if len(b.data)-b.end < readSize/2 {
		grown := make([]byte, max(readSize, 2*len(b.data)))
		copy(grown, b.data[:b.end])
		b.data = grown
	}
	n, err := b.r.Read(b.data[b.end:])
	b.end += n
	b.err = err
	return n > 0 || err == nil
}

// shrink gives the memory of a large record back.
func (b *buffer) shrink() {
	if len(b.data) > 8<<20 && b.end-b.start < readSize {
		b.data = append(make([]byte, 0, 2*readSize), b.unread()...)
		b.start, b.end = 0, len(b.data)
		b.data = b.data[:cap(b.data)]
	}
}

// failure is the error to end with once all is read.
func (b *buffer) failure() error {
	if errors.Is(b.err, io.EOF) {
		return io.EOF
	}
	return &exitError{code: exitNoInput, err: fmt.Errorf("read input: %s", rootCause(b.err))}
}

// left is how much there is still to read of a regular file; ok is false for any other input.
func (b *buffer) left() (n int64, ok bool) {
	f, ok := fileOf(b.r)
	if !ok {
		return 0, false
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	at, err := f.Seek(0, io.SeekCurrent)
	return info.Size() - at, err == nil && at <= info.Size()
}

// delimited cuts at a delimiter. Exactly one delimiter is taken off each record; the last record needs none.
type delimited struct {
	buf       buffer
	delimiter []byte
	crlf      bool // take one CR off before the delimiter, too
	skipEmpty bool
	limit     int
	stop      bool // nothing is wanted after a record over the limit: its end, which may never come, is not looked for
	number    uint64
	skipping  bool // a record over the limit was reported, and its end not found yet
}

func (d *delimited) next() (record, error) {
	for {
		rec, err := d.cut()
		if err != nil || !d.skipEmpty || len(rec.data) > 0 {
			return rec, err
		}
	}
}

func (d *delimited) cut() (record, error) {
	d.buf.shrink()
	if d.skipping {
		d.skip()
	}
	searched := 0
	for {
		if i := bytes.Index(d.buf.unread()[searched:], d.delimiter); i >= 0 {
			return d.take(searched+i, len(d.delimiter))
		}
		have := len(d.buf.unread())
		if have > d.limit+len(d.delimiter) {
			d.number++
			d.skipping = !d.stop
			return record{}, &recordError{d.number, &tooLargeError{limit: int64(d.limit)}}
		}
		searched = max(0, have-len(d.delimiter)+1)
		if !d.buf.fill() {
			break
		}
	}
	if len(d.buf.unread()) == 0 || !errors.Is(d.buf.err, io.EOF) {
		return record{}, d.buf.failure()
	}
	return d.take(len(d.buf.unread()), 0)
}

// take returns the next n bytes as a record and steps over them and the framing after them.
func (d *delimited) take(n, framing int) (record, error) {
	d.number++
	rec := record{number: d.number, data: d.buf.unread()[:n], raw: d.buf.unread()[:n+framing]}
	d.buf.start += n + framing
	if n > d.limit {
		return record{}, &recordError{d.number, &tooLargeError{int64(n), int64(d.limit)}}
	}
	if d.crlf && framing > 0 {
		rec.data = bytes.TrimSuffix(rec.data, []byte("\r"))
	}
	return rec, nil
}

// skip reads past a record that is too long, keeping none of it. It was reported before, for its end may take long to come, or never do.
func (d *delimited) skip() {
	d.skipping = false
	for {
		unread := d.buf.unread()
		if i := bytes.Index(unread, d.delimiter); i >= 0 {
			d.buf.start += i + len(d.delimiter)
			return
		}
		keep := min(len(unread), len(d.delimiter)-1) // the delimiter may be half read
		d.buf.start += len(unread) - keep
		if !d.buf.fill() {
			d.buf.start = d.buf.end
			return
		}
	}
}

// wholeInput is one record: all of the input, which may be empty.
type wholeInput struct {
	buf   buffer
	limit int
	done  bool
}

func (w *wholeInput) next() (record, error) {
	if w.done {
		return record{}, io.EOF
	}
	for len(w.buf.unread()) <= w.limit {
		if w.buf.fill() {
			continue
		}
		w.done = true
		if err := w.buf.failure(); !errors.Is(err, io.EOF) {
			return record{}, err
		}
		return record{number: 1, data: w.buf.unread(), raw: w.buf.unread()}, nil
	}
	w.done = true
	tooLarge := &tooLargeError{limit: int64(w.limit)} // nothing comes after it, and its end may never come
	if left, ok := w.buf.left(); ok {
		tooLarge.size = int64(len(w.buf.unread())) + left
	}
	return record{}, &recordError{1, tooLarge}
}

// prefixed reads records that are preceded by their length, as 4 bytes, most significant first.
type prefixed struct {
	buf    buffer
	limit  int
	number uint64
}

const prefixSize = 4

func (p *prefixed) next() (record, error) {
	p.buf.shrink()
	if err := p.need(prefixSize); err != nil {
		return record{}, err
	}
	size := int64(binary.BigEndian.Uint32(p.buf.unread()))
	if size > int64(p.limit) {
		// Most likely this is not framed input at all: stepping over it would go on reading nonsense.
		says, limit := sizeAndLimit(size, int64(p.limit))
		return record{}, failf(exitInput, "record %d: its length prefix says %s; the input is not in len framing, or over the limit of %s",
			p.number+1, says, limit)
	}
	whole := prefixSize + int(size)
	if err := p.need(whole); err != nil {
		return record{}, err
	}
	p.number++
	raw := p.buf.unread()[:whole]
	p.buf.start += whole
	return record{number: p.number, data: raw[prefixSize:], raw: raw}, nil
}

func (p *prefixed) need(n int) error {
	for len(p.buf.unread()) < n {
		if p.buf.fill() {
			continue
		}
		if err := p.buf.failure(); !errors.Is(err, io.EOF) || len(p.buf.unread()) == 0 {
			return err
		}
		return failf(exitInput, "record %d: the input ends in the middle of it (%d of %d bytes)", p.number+1, len(p.buf.unread()), n)
	}
	return nil
}
