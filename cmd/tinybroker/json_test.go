package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func TestMessageJSON(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678900000, time.FixedZone("", 3600))
	for _, c := range []struct {
		name string
		m    core.Message
		want string
	}{
		{"everything", core.Message{Topic: "a.b", Key: "k", Headers: map[string]string{"z": "1", "a": "2"}, Payload: []byte("hi"), PublishTime: at},
			`{"topic":"a.b","seq":7,"time":"2026-01-02T02:04:05.6789Z","key":"k","headers":{"a":"2","z":"1"},"size":2,"attempt":1,"data":"hi"}`},
		{"nothing", core.Message{Topic: "a"},
			`{"topic":"a","seq":7,"time":null,"key":"","headers":{},"size":0,"attempt":1,"data":""}`},
		{"not UTF-8", core.Message{Topic: "a", Payload: []byte{0xff, 0x00}},
			`{"topic":"a","seq":7,"time":null,"key":"","headers":{},"size":2,"attempt":1,"data_base64":"/wA="}`},
		{"HTML stays readable", core.Message{Topic: "a", Payload: []byte("<a href=\"x\">&</a>")},
			`{"topic":"a","seq":7,"time":null,"key":"","headers":{},"size":17,"attempt":1,"data":"<a href=\"x\">&</a>"}`},
		{"nothing drives the terminal", core.Message{Topic: "a", Payload: []byte("\x1b[2J\u009b\u202e\u2028\x7f\U000e0041")},
			`{"topic":"a","seq":7,"time":null,"key":"","headers":{},"size":17,"attempt":1,"data":"\u001b[2J\u009b\u202e\u2028\u007f\udb40\udc41"}`},
		{"a year that RFC 3339 has not", core.Message{Topic: "a", PublishTime: time.Unix(1<<40, 0)},
			`{"topic":"a","seq":7,"time":null,"key":"","headers":{},"size":0,"attempt":1,"data":""}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := string(appendMessageJSON(nil, &c.m, 7, 1))
			if got != c.want+"\n" {
				t.Errorf("got  %swant %s", got, c.want)
			}
			if !json.Valid([]byte(got)) {
				t.Error("not valid JSON")
			}
		})
	}
}

func TestMessageJSONRoundTrip(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("\"\\<&\n\x00\u2028\ufffd\U0001f600é"))))
	rapid.Check(t, func(t *rapid.T) {
		m := core.Message{
			Topic:   text.Draw(t, "topic"),
			Key:     text.Draw(t, "key"),
			Headers: rapid.MapOf(text, text).Draw(t, "headers"),
			Payload: rapid.OneOf(
				rapid.SliceOf(rapid.Byte()),
				rapid.Map(text, func(s string) []byte { return []byte(s) }),
			).Draw(t, "payload"),
		}
		if rapid.Bool().Draw(t, "has time") {
			m.PublishTime = time.Unix(rapid.Int64Range(-1e10, 1e11).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanos")).UTC()
		}
		line := appendMessageJSON(nil, &m, 1, 1)
		if !utf8.Valid(line) || strings.Count(string(line), "\n") != 1 {
			t.Fatalf("not one line of UTF-8: %q", line)
		}
		back, err := parseMessageJSON(line[:len(line)-1], time.Now())
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !back.PublishTime.Equal(m.PublishTime) || back.PublishTime.IsZero() != m.PublishTime.IsZero() {
			t.Fatalf("time %v became %v", m.PublishTime, back.PublishTime)
		}
		back.PublishTime = m.PublishTime
		if !bytes.Equal(back.Payload, m.Payload) {
			t.Fatalf("payload %q became %q", m.Payload, back.Payload)
		}
		back.Payload = m.Payload
		if len(m.Headers) == 0 {
			back.Headers = m.Headers
		}
		if !reflect.DeepEqual(*back, m) {
			t.Fatalf("%+v became %+v", m, *back)
		}
	})
}

// Whatever is quoted is JSON, and says what encoding/json would say of it.
func TestAppendJSONString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("\xff\xed\xa0\x80\xf0\x9f\x98a\"")))).Draw(t, "text"))
		got := appendJSONString(nil, s)
		if !utf8.Valid(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		var back string
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		marshalled, _ := json.Marshal(s)
		var want string
		if err := json.Unmarshal(marshalled, &want); err != nil || back != want {
			t.Fatalf("%q means %q, want %q", got, back, want)
		}
	})
}

func TestParseMessageJSON(t *testing.T) {
	now := time.Date(2026, 5, 5, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ name, line, payload, wantErr string }{
		{"typed by hand", `{"topic":"a","data":"x"}`, "x", ""},
		{"fields of a later version", `{"topic":"a","data":"x","more":{"y":[1]}}`, "x", ""},
		{"base64", `{"topic":"a","data_base64":"/wA="}`, "\xff\x00", ""},
		{"a pair of surrogates", `{"topic":"a","data":"\ud83d\ude00"}`, "😀", ""},
		{"an escaped backslash before u", `{"topic":"a","data":"\\ud800"}`, `\ud800`, ""},
		{"no data", `{"topic":"a","dta":"x"}`, "", "neither data nor data_base64"},
		{"both data", `{"data":"x","data_base64":""}`, "", "both data and data_base64"},
		{"bad base64", `{"data_base64":"###"}`, "", "not base64"},
		{"half a surrogate pair", `{"data":"\ud83d"}`, "", "surrogate"},
		{"the second half alone", `{"data":"\ude00x"}`, "", "surrogate"},
		{"two first halves", `{"data":"\ud83d\ud83d\ude00"}`, "", "surrogate"},
		{"not UTF-8", "{\"data\":\"\xff\"}", "", "not UTF-8"},
		{"UTF-16", "\xff\xfe{\x00", "", "looks like UTF-16"},
		{"a byte order mark", "\xef\xbb\xbf{\"data\":\"\"}", "", "begins with a byte order mark"},
		{"number as data", `{"data":5}`, "", "data: a JSON number where a string belongs"},
		{"a number as headers", `{"headers":5,"data":""}`, "", "headers: a JSON number where an object of strings belongs"},
		{"headers of numbers", `{"headers":{"a":1},"data":""}`, "", "headers: a JSON number where a string belongs"},
		{"a list", `[1]`, "", "a JSON array where an object belongs"},
		{"not JSON", `hello`, "", "not a JSON object"},
		{"two objects", `{"data":"x"}{"data":"y"}`, "", "not a JSON object"},
		{"bad time", `{"time":"yesterday","data":"x"}`, "", "time is not like"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := parseMessageJSON([]byte(c.line), now)
			switch {
			case c.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("error %v, want one with %q", err, c.wantErr)
				}
			case err != nil:
				t.Error(err)
			case string(m.Payload) != c.payload || !m.PublishTime.Equal(now):
				t.Errorf("payload %q at %v", m.Payload, m.PublishTime)
			}
		})
	}
}
