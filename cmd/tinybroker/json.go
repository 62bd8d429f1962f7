package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// One message as one line of JSON: what `sub -o json` writes and `pub -i json` reads. The two are exact inverses: topic,
// key, headers, publish time and payload come out as they went in.

// appendMessageJSON appends the line of one delivered message, line end included.
func appendMessageJSON(dst []byte, m *core.Message, seq uint64, attempt uint32) []byte {
	dst = append(dst, `{"topic":`...)
	dst = appendJSONString(dst, m.Topic)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"time":`...)
	dst = appendJSONTime(dst, m.PublishTime)
	dst = append(dst, `,"key":`...)
	dst = appendJSONString(dst, m.Key)
	dst = append(dst, `,"headers":`...)
	dst = appendJSONHeaders(dst, m.Headers)
	dst = append(dst, `,"size":`...)
	dst = strconv.AppendInt(dst, int64(len(m.Payload)), 10)
	dst = append(dst, `,"attempt":`...)
	dst = strconv.AppendUint(dst, uint64(attempt), 10)
	if utf8.Valid(m.Payload) {
		dst = append(dst, `,"data":`...)
		dst = appendJSONString(dst, m.Payload)
	} else {
		dst = append(dst, `,"data_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, m.Payload)
		dst = append(dst, '"')
	}
	return append(dst, "}\n"...)
}

func appendJSONHeaders(dst []byte, headers map[string]string) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(headers)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, name)
		dst = append(dst, ':')
		dst = appendJSONString(dst, headers[name])
	}
	return append(dst, '}')
}

// appendJSONTime writes null for a time that was not set, or that RFC 3339 cannot say.
func appendJSONTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	if t.IsZero() || t.Year() < 1 || t.Year() > 9999 {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = t.AppendFormat(dst, time.RFC3339Nano)
	return append(dst, '"')
}

// appendJSONString quotes s. It escapes what JSON demands and all that could drive a terminal, and nothing else: < and & stay readable.
// Bytes that are not UTF-8, which JSON cannot say, become replacement characters, as with encoding/json.
func appendJSONString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	plain := 0 // s[plain:i] needs no escape and is not appended yet
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
				i++
				continue
			}
			dst = append(dst, s[plain:i]...)
			dst = appendJSONEscape(dst, rune(c))
			i++
			plain = i
			continue
		}
		r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		if hostile(r) || r == utf8.RuneError && n == 1 {
			dst = append(dst, s[plain:i]...)
			dst = appendJSONEscape(dst, r)
			plain = i + n
		}
		i += n
	}
	dst = append(dst, s[plain:]...)
	return append(dst, '"')
}

func appendJSONEscape(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	if r > 0xffff { // two halves of a surrogate pair
		r -= 0x10000
		dst = appendJSONEscape(dst, 0xd800+r>>10)
		return appendJSONEscape(dst, 0xdc00+r&0x3ff)
	}
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// jsonMessage is what is read of such a line. Fields that are not there are told apart from empty ones.
type jsonMessage struct {
	Topic      string            `json:"topic"`
	Time       json.RawMessage   `json:"time"`
	Key        string            `json:"key"`
	Headers    map[string]string `json:"headers"`
	Data       *string           `json:"data"`
	DataBase64 *string           `json:"data_base64"`
}

// parseMessageJSON reads one line. A line without a time is a new message and gets now; "time":null stays not set.
func parseMessageJSON(line []byte, now time.Time) (*core.Message, error) {
	switch {
	case bytes.HasPrefix(line, []byte("\xff\xfe")), bytes.HasPrefix(line, []byte("\xfe\xff")): // what PowerShell writes to files
		return nil, errors.New("the line looks like UTF-16; UTF-8 is wanted")
	case bytes.HasPrefix(line, []byte("\uFEFF")):
		return nil, errors.New("the line begins with a byte order mark; UTF-8 without one is wanted")
	case !utf8.Valid(line):
		return nil, errors.New("the line is not UTF-8; binary data goes into data_base64")
	}
	if loneSurrogate(line) {
		return nil, errors.New(`half of a \u surrogate pair; the other half is missing`)
	}
	var j jsonMessage
	if err := json.Unmarshal(line, &j); err != nil {
		return nil, jsonError(err)
	}
	m := &core.Message{Topic: j.Topic, Key: j.Key, Headers: j.Headers, PublishTime: now}
	switch {
	case j.Data != nil && j.DataBase64 != nil:
		return nil, errors.New("both data and data_base64")
	case j.Data != nil:
		m.Payload = []byte(*j.Data)
	case j.DataBase64 != nil:
		data, err := base64.StdEncoding.Strict().DecodeString(*j.DataBase64)
		if err != nil {
			return nil, errors.New("data_base64 is not base64")
		}
		m.Payload = data
	default:
		return nil, errors.New(`neither data nor data_base64; an empty message has "data":""`)
	}
	return m, parseJSONTime(j.Time, m)
}

func parseJSONTime(raw json.RawMessage, m *core.Message) error {
	if raw == nil {
		return nil
	}
	m.PublishTime = time.Time{}
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(raw, &m.PublishTime); err != nil {
		return errors.New("time is not like 2006-01-02T15:04:05.999999999Z")
	}
	return nil
}

func jsonError(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if kind.Field == "" {
			return errors.New("a JSON " + kind.Value + " where an object belongs")
		}
		belongs := "a string"
		if kind.Type.Kind() == reflect.Map {
			belongs = "an object of strings"
		}
		return errors.New(kind.Field + ": a JSON " + kind.Value + " where " + belongs + " belongs")
	}
	return errors.New("not a JSON object: " + err.Error())
}

// loneSurrogate finds an escape of half a character, which the JSON decoder would silently turn into another one.
func loneSurrogate(line []byte) bool {
	high := false // the escape just before was a first half
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' || i+1 == len(line) {
			if high {
				return true
			}
			continue
		}
		i++
		unit, ok := hexUnit(line[i:])
		if !ok {
			if high {
				return true
			}
			continue
		}
		i += 4
		low := unit >= 0xdc00 && unit <= 0xdfff
		if low != high {
			return true
		}
		high = unit >= 0xd800 && unit <= 0xdbff
	}
	return high
}

// hexUnit reads uXXXX.
func hexUnit(s []byte) (uint64, bool) {
	if len(s) < 5 || s[0] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s[1:5]), 16, 16)
	return n, err == nil
}
