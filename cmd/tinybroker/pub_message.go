package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"text/template"
	"time"
	"unicode/utf8"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// composer makes messages of records.
type composer struct {
	topic        string
	key          string
	hasKey       bool
	keyDelimiter []byte
	headers      map[string]string
	json         bool
	fill         *filler // nil: no templates
	seq          uint64
}

// newComposer refuses templates that can never be filled in.
func newComposer(o *pubOptions) (*composer, error) {
	headers, err := parseHeaders(o.headers)
	if err != nil {
		return nil, err
	}
	keyDelimiter, err := parseDelimiter(o.keyDelimiter)
	if err != nil {
		return nil, usagef("pub: --key-delimiter: %w", err)
	}
	c := &composer{
		topic:        o.topic,
		key:          o.key,
		hasKey:       o.given["key"],
		keyDelimiter: []byte(keyDelimiter),
		headers:      headers,
		json:         o.input == "json" && !o.hasPayload,
	}
	if !o.template {
		return c, nil
	}
	c.fill = &filler{cache: map[string]*template.Template{}}
	texts := []string{o.topic, o.key, o.payload}
	for name, value := range headers {
		texts = append(texts, name, value)
	}
	for _, text := range texts { // an unknown field shows only when the template is used
		if _, err := c.fill.text(text); err != nil {
			return nil, withHint(failf(exitInput, "pub: %w", err), "as in tinybroker pub -T jobs 'number {{.Seq}}'; tinybroker pub --help names all that it knows")
		}
	}
	return c, nil
}

// message makes a message that aliases rec. The error is about this record alone.
func (c *composer) message(rec record) (*core.Message, error) {
	m, err := c.compose(rec)
	if err == nil && c.fill != nil {
		c.fill.data = templateData{Seq: c.seq + 1, Line: rec.number, now: time.Now()}
		err = c.fill.message(m)
	}
	if err == nil {
		err = checkText(m)
	}
	if err == nil && (c.json || c.fill != nil) {
		err = core.ValidateTopic([]byte(m.Topic))
	}
	if err != nil {
		return nil, err
	}
	c.seq++
	return m, nil
}

func (c *composer) compose(rec record) (*core.Message, error) {
	if c.json {
		return c.composeJSON(rec)
	}
	m := &core.Message{Topic: c.topic, Key: c.key, Headers: c.headers, Payload: rec.data, PublishTime: time.Now()}
	if len(c.keyDelimiter) == 0 {
		return m, nil
	}
	key, payload, ok := bytes.Cut(rec.data, c.keyDelimiter)
	if !ok {
		return nil, fmt.Errorf("no key: %q does not occur", c.keyDelimiter)
	}
	m.Key, m.Payload = string(key), payload
	return m, nil
}

func (c *composer) composeJSON(rec record) (*core.Message, error) {
	m, err := parseMessageJSON(rec.data, time.Now())
	if err != nil {
		return nil, err
	}
	if c.topic != "" {
		m.Topic = c.topic
	}
	if m.Topic == "" {
		return nil, errors.New("no topic, neither in the line nor as TOPIC")
	}
	if c.hasKey {
		m.Key = c.key
	}
	if len(c.headers) > 0 && m.Headers == nil {
		m.Headers = map[string]string{}
	}
	maps.Copy(m.Headers, c.headers)
	return m, nil
}

// checkText refuses what a protobuf string cannot carry. Payloads may be anything.
func checkText(m *core.Message) error {
	if !utf8.ValidString(m.Key) {
		return errors.New("the key is not UTF-8")
	}
	for name, value := range m.Headers {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return errors.New("a header is not UTF-8")
		}
	}
	return nil
}

// templateData is what templates know of the message they are filled in for.
type templateData struct {
	Seq  uint64
	Line uint64
	now  time.Time
	uuid string
}

// stamp is a time that prints itself as RFC 3339 but has all the methods of a time.
type stamp struct{ time.Time }

func (s stamp) String() string { return s.Format(time.RFC3339Nano) }

// Now is the time of the message, the same wherever it is used.
func (d *templateData) Now() stamp { return stamp{d.now} }

// UnixMilli is the same in milliseconds.
func (d *templateData) UnixMilli() int64 { return d.now.UnixMilli() }

// UUID is a random UUID (version 4), the same wherever it is used in one message.
func (d *templateData) UUID() string {
	if d.uuid == "" {
		var b [16]byte
		rand.Read(b[:]) // never fails
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		d.uuid = fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	}
	return d.uuid
}

// Host is this machine's name.
func (d *templateData) Host() (string, error) { return os.Hostname() }

// filler fills templates in. It remembers the parsed ones that come again with every message.
type filler struct {
	cache map[string]*template.Template
	data  templateData
	out   bytes.Buffer
}

const maxTemplates = 1000

func (f *filler) in(text string) (*template.Template, error) {
	if t := f.cache[text]; t != nil {
		return t, nil
	}
	t, err := template.New("template").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, errors.New("template: " + templateError(err))
	}
	if len(f.cache) < maxTemplates {
		f.cache[text] = t
	}
	return t, nil
}

func (f *filler) text(text string) (string, error) {
	t, err := f.in(text)
	if err != nil {
		return "", err
	}
	f.out.Reset()
	if err := t.Execute(&f.out, &f.data); err != nil {
		return "", errors.New("template: " + templateError(err))
	}
	return f.out.String(), nil
}

func (f *filler) message(m *core.Message) (err error) {
	set := func(text string) (filled string) {
		if err == nil {
			filled, err = f.text(text)
		}
		return filled
	}
	m.Topic, m.Key = set(m.Topic), set(m.Key)
	m.Payload = []byte(set(string(m.Payload)))
	if len(m.Headers) > 0 {
		headers := make(map[string]string, len(m.Headers))
		for name, value := range m.Headers {
			headers[set(name)] = set(value)
		}
		m.Headers = headers
	}
	return err
}
