package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// A format appends one delivered message to dst as it is to be written.
type format func(dst []byte, d *rpc.Delivery) ([]byte, error)

// formatNamed returns one of the fixed formats. delimiter ends each raw message.
func formatNamed(name, delimiter string, color bool) format {
	switch name {
	case "text":
		return textFormat{color}.append
	case "json":
		return func(dst []byte, d *rpc.Delivery) ([]byte, error) {
			return appendMessageJSON(dst, &d.Message, d.Sequence, d.Attempt), nil
		}
	case "len":
		return func(dst []byte, d *rpc.Delivery) ([]byte, error) {
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(d.Payload)))
			return append(dst, d.Payload...), nil
		}
	case "hex":
		return func(dst []byte, d *rpc.Delivery) ([]byte, error) {
			return append(hex.AppendEncode(dst, d.Payload), '\n'), nil
		}
	case "base64":
		return func(dst []byte, d *rpc.Delivery) ([]byte, error) {
			return append(base64.StdEncoding.AppendEncode(dst, d.Payload), '\n'), nil
		}
	}
	return func(dst []byte, d *rpc.Delivery) ([]byte, error) { // raw
		return append(append(dst, d.Payload...), delimiter...), nil
	}
}

// textFormat is for eyes: 12:01:02.345 orders k=abc [trace=17] 132B payload
type textFormat struct{ color bool }

const (
	styleTopic = "\x1b[36m"
	styleFaint = "\x1b[2m"
	styleReset = "\x1b[0m"
)

func (f textFormat) append(dst []byte, d *rpc.Delivery) ([]byte, error) {
	at := d.PublishTime
	if at.IsZero() {
		at = time.Now()
	}
	dst = f.style(dst, styleFaint)
	dst = at.Local().AppendFormat(dst, "15:04:05.000")
	dst = f.style(dst, styleReset)
	dst = append(dst, ' ')
	dst = f.style(dst, styleTopic)
	dst = appendSafe(dst, []byte(d.Topic))
	dst = f.style(dst, styleReset)
	if d.Key != "" {
		dst = append(dst, " k="...)
		dst = appendSafe(dst, []byte(d.Key))
	}
	if len(d.Headers) > 0 {
		dst = appendTextHeaders(append(dst, ' '), d.Headers)
	}
	if d.Attempt > 1 {
		dst = append(dst, " attempt="...)
		dst = strconv.AppendUint(dst, uint64(d.Attempt), 10)
	}
	dst = append(dst, ' ')
	dst = f.style(dst, styleFaint)
	dst = strconv.AppendInt(dst, int64(len(d.Payload)), 10)
	dst = append(dst, 'B')
	dst = f.style(dst, styleReset)
	if len(d.Payload) > 0 {
		dst = append(dst, ' ')
		dst = appendSafe(dst, d.Payload)
	}
	return append(dst, '\n'), nil
}

func appendTextHeaders(dst []byte, headers map[string]string) []byte {
	dst = append(dst, '[')
	for i, name := range slices.Sorted(maps.Keys(headers)) {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = appendSafe(dst, []byte(name))
		dst = append(dst, '=')
		dst = appendSafe(dst, []byte(headers[name]))
	}
	return append(dst, ']')
}

func (f textFormat) style(dst []byte, s string) []byte {
	if !f.color {
		return dst
	}
	return append(dst, s...)
}

// formatData is what a --format template sees of a message.
type formatData struct {
	Topic   string
	Seq     uint64
	Time    time.Time
	Key     string
	Headers map[string]string
	Payload string
	Size    int
	Attempt uint32
}

var formatFuncs = template.FuncMap{
	"hex":    func(s string) string { return hex.EncodeToString([]byte(s)) },
	"base64": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"json": func(v any) (string, error) {
		switch v := v.(type) {
		case string:
			return string(appendJSONString(nil, v)), nil
		case map[string]string: // as in -o json, where none are an empty object
			return string(appendJSONHeaders(nil, v)), nil
		}
		b, err := json.Marshal(v)
		return string(b), err
	},
}

// templateFormat is the format of --format. Like raw it writes bytes as they are, but not to a terminal: there, what
// could drive it is escaped, save line ends and tabs.
func templateFormat(text, delimiter string, terminal bool) (format, error) {
	t, err := template.New("format").Funcs(formatFuncs).Option("missingkey=zero").Parse(text)
	if err == nil { // an unknown field shows only when the template is used
		err = t.Execute(new(sliceWriter), formatData{})
	}
	// A function may well refuse what a message without anything holds.
	if err != nil && !strings.Contains(err.Error(), ": error calling ") {
		return nil, withHint(failf(exitInput, "--format: %s", templateError(err)), "as in --format '{{.Topic}} {{.Payload}}'; tinybroker sub --help names all that it knows")
	}
	return func(dst []byte, d *rpc.Delivery) ([]byte, error) {
		w := sliceWriter{dst}
		err := t.Execute(&w, formatData{d.Topic, d.Sequence, d.PublishTime, d.Key, d.Headers, string(d.Payload), len(d.Payload), d.Attempt})
		if err != nil {
			return dst, failf(exitInput, "--format: message %d: %s", d.Sequence, templateError(err))
		}
		if terminal {
			w.b = appendSafeLines(dst, w.b[len(dst):])
		}
		return append(w.b, delimiter...), nil
	}, nil
}

var templateNoise = regexp.MustCompile(` in type \*?main\.\w+|executing "\w+" at `)

// templateError leaves out of an error what is ours: the names of the template and of types.
func templateError(err error) string {
	text := strings.TrimPrefix(err.Error(), "template: ")
	_, text, _ = strings.Cut(text, ":")
	return templateNoise.ReplaceAllString(text, "")
}

// sliceWriter appends what is written to b.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}
