package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// input is one source of records: the PAYLOAD, standard input, or a file.
type input struct {
	name string // of the file; empty: none
	unit string // what a record is called: line, record; empty: the input is one record
	open func() (recordReader, func(), error)
}

// where names a record for people: "line 17", "a.txt: line 17", "a.txt".
func (in *input) where(number uint64) string {
	switch {
	case in.unit == "" && in.name == "":
		return "the message"
	case in.unit == "":
		return in.name
	case in.name == "":
		return fmt.Sprintf("%s %d", in.unit, number)
	}
	return fmt.Sprintf("%s: %s %d", in.name, in.unit, number)
}

// inputs are where the records come from, in order. Nothing is opened yet.
func (o *pubOptions) inputs(stdin io.Reader) []*input {
	if o.hasPayload {
		unit := "message"
		if o.count == 1 {
			unit = ""
		}
		return []*input{{unit: unit, open: func() (recordReader, func(), error) {
			return &repeated{payload: []byte(o.payload), count: uint64(o.count)}, func() {}, nil
		}}}
	}
	if len(o.files) == 0 {
		return []*input{{unit: o.unit(), open: func() (recordReader, func(), error) {
			return o.reader(stdin), func() {}, nil
		}}}
	}
	var list []*input
	for _, path := range o.files {
		in := &input{name: path, unit: o.unit()}
		if !o.given["input"] {
			in.unit = ""
		}
		in.open = func() (recordReader, func(), error) { return o.openFile(path) }
		list = append(list, in)
	}
	return list
}

func (o *pubOptions) unit() string {
	switch o.input {
	case "line", "json":
		return "line"
	case "whole":
		return ""
	}
	return "record"
}

// typing says how a person at the terminal types messages.
func (o *pubOptions) typing() string {
	switch {
	case o.input == "whole":
		return "reading one message; Ctrl-D ends it"
	case o.input == "json":
		return "reading messages as JSON, one per line; Ctrl-D ends"
	case o.input == "line" && !o.given["delimiter"]:
		return "reading messages, one per line; Ctrl-D ends"
	}
	return "reading messages; Ctrl-D ends"
}

func (o *pubOptions) openFile(path string) (recordReader, func(), error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, failf(exitNoInput, "--file %s: %s", path, rootCause(err))
	}
	if o.given["input"] {
		return o.reader(f), func() { f.Close() }, nil
	}
	return &wholeInput{buf: buffer{r: f}, limit: maxRecord}, func() { f.Close() }, nil
}

func (o *pubOptions) reader(r io.Reader) recordReader {
	buf := buffer{r: r}
	stop := o.onError != "continue"
	switch o.input {
	case "whole":
		return &wholeInput{buf: buf, limit: maxRecord}
	case "nul":
		return &delimited{buf: buf, delimiter: []byte{0}, skipEmpty: o.skipEmpty, limit: maxRecord, stop: stop}
	case "len":
		return &prefixed{buf: buf, limit: maxRecord}
	case "json":
		// Base64 and escapes make a line longer than the record in it.
		return &delimited{buf: buf, delimiter: []byte{'\n'}, limit: 2 * maxRecord, stop: stop}
	}
	d, _ := parseDelimiter(o.delimiter) // checked with the flags
	return &delimited{buf: buf, delimiter: []byte(d), crlf: o.crlf, skipEmpty: o.skipEmpty, limit: maxRecord, stop: stop}
}

// repeated is the PAYLOAD, as often as asked for.
type repeated struct {
	payload []byte
	count   uint64
	number  uint64
}

func (r *repeated) next() (record, error) {
	if r.number == r.count {
		return record{}, io.EOF
	}
	r.number++
	return record{number: r.number, data: r.payload, raw: append(slices.Clip(r.payload), '\n')}, nil
}

// blank reports a line that holds no JSON, as editors leave at the end of files.
func blank(line []byte) bool { return strings.TrimSpace(string(line)) == "" }
