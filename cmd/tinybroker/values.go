package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// The kinds of setting. Each is a pflag.Value that knows its range, whether the text comes from a flag, the
// environment or a file, and prints itself in a form that it reads.

// ranged is a setting that not every value of its kind is good for.
type ranged interface{ Range() string }

// wholeValue is a whole number within bounds.
type wholeValue[T int | int64 | uint32] struct {
	p        *T
	min, max T
}

func whole[T int | int64 | uint32](p *T, least, most T) *wholeValue[T] {
	return &wholeValue[T]{p, least, most}
}

func (v *wholeValue[T]) String() string { return strconv.FormatInt(int64(*v.p), 10) }
func (v *wholeValue[T]) Type() string   { return "number" }

func (v *wholeValue[T]) Range() string {
	if int64(v.max) == math.MaxInt64 {
		return fmt.Sprintf("at least %d", v.min)
	}
	return fmt.Sprintf("%d to %d", v.min, v.max)
}

func (v *wholeValue[T]) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < int64(v.min) || n > int64(v.max) {
		if int64(v.max) == math.MaxInt64 {
			return fmt.Errorf("%q is not a whole number of at least %d", s, v.min)
		}
		return fmt.Errorf("%q is not a whole number between %d and %d", s, v.min, v.max)
	}
	*v.p = T(n)
	return nil
}

// setDefault is Set for a default, which may be out of bounds: it then says that there is none.
func (v *wholeValue[T]) setDefault(s string) {
	n, _ := strconv.ParseInt(s, 10, 64) // it is a number
	*v.p = T(n)
}

// rateValue is a number of messages a second; 0 is no limit.
type rateValue struct{ p *float64 }

func (v rateValue) String() string { return strconv.FormatFloat(*v.p, 'g', -1, 64) }
func (v rateValue) Type() string   { return "rate" }
func (v rateValue) Range() string  { return "0, or 0.000001 to 1e9" }

func (v rateValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(n) || n != 0 && n < 1e-6 || n > 1e9 {
		return fmt.Errorf("%q is not a number of messages a second (0, or 0.000001 to 1e9)", s)
	}
	*v.p = n
	return nil
}

// durationValue is a time span with a unit, within bounds.
type durationValue struct {
	p        *time.Duration
	min, max time.Duration
}

// durationForm is what time.ParseDuration takes without signs and without a unit that comes twice.
var durationForm = regexp.MustCompile(`^(0|([\d.]+h)?([\d.]+m)?([\d.]+s)?([\d.]+ms)?([\d.]+[uµμ]s)?([\d.]+ns)?)$`)

// longest is far more than anyone waits, and far from where adding durations overflows.
const longest = 10000 * time.Hour

func span(p *time.Duration, least, most time.Duration) durationValue {
	return durationValue{p, least, most}
}

func (v durationValue) String() string { return shortDuration(*v.p) }
func (v durationValue) Type() string   { return "duration" }
func (v durationValue) Range() string  { return shortDuration(v.min) + " to " + shortDuration(v.max) }

func (v durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if n, bare := strconv.ParseFloat(s, 64); bare == nil && n > 0 && !math.IsInf(n, 0) {
		return fmt.Errorf("%q has no unit: write %ss for seconds", s, s)
	}
	if err != nil || !durationForm.MatchString(s) {
		return fmt.Errorf("%q is not a duration such as 500ms, 5s or 1m30s", s)
	}
	if d < v.min || d > v.max {
		return fmt.Errorf("%q is not between %s and %s", s, shortDuration(v.min), shortDuration(v.max))
	}
	*v.p = d
	return nil
}

// shortDuration is d without the zero units that time.Duration prints: 1m instead of 1m0s.
func shortDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sizeValue is a number of bytes within bounds.
type sizeValue[T int | int64] struct {
	p        *T
	min, max T
}

func size[T int | int64](p *T, least, most T) *sizeValue[T] {
	return &sizeValue[T]{p, least, most}
}

func (v *sizeValue[T]) String() string { return exactSize(int64(*v.p)) }
func (v *sizeValue[T]) Type() string   { return "size" }

func (v *sizeValue[T]) Range() string {
	return exactSize(int64(v.min)) + " to " + exactSize(int64(v.max))
}

func (v *sizeValue[T]) Set(s string) error {
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	if n < int64(v.min) || n > int64(v.max) {
		return fmt.Errorf("%q is not between %s and %s", s, exactSize(int64(v.min)), exactSize(int64(v.max)))
	}
	*v.p = T(n)
	return nil
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1}, {"", 1},
}

// parseSize reads 65536, 1MiB (1 048 576 bytes) or 1MB (1 000 000). The number is whole: nobody has to wonder how a
// fraction is rounded.
func parseSize(s string) (int64, error) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	unit := strings.TrimSpace(s[digits:])
	for _, u := range sizeUnits {
		if !strings.EqualFold(unit, u.name) {
			continue
		}
		n, err := strconv.ParseInt(s[:digits], 10, 64)
		if err != nil || n > math.MaxInt64/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a size such as 65536, 512KiB, 1MiB or 1MB", s)
}

// exactSize is n in the largest unit that divides it.
func exactSize(n int64) string {
	for _, u := range sizeUnits[:4] {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// choiceValue is one of a few words.
type choiceValue struct {
	p     *string
	words []string
}

func choice(p *string, words ...string) choiceValue { return choiceValue{p, words} }

func (v choiceValue) String() string { return *v.p }
func (v choiceValue) Type() string   { return strings.Join(v.words, "|") }
func (v choiceValue) Range() string  { return strings.Join(v.words, ", ") }

func (v choiceValue) Set(s string) error {
	if !slices.Contains(v.words, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(v.words, ", "))
	}
	*v.p = s
	return nil
}

// setDefault is Set for a default, which need not be one of the words.
func (v choiceValue) setDefault(s string) { *v.p = s }

// modeValue is the access mode of a file, in octal digits.
type modeValue struct{ p *fs.FileMode }

var modeForm = regexp.MustCompile(`^0?o?[67][0-7]{2}$`)

func (v modeValue) String() string { return fmt.Sprintf("%04o", *v.p) }
func (v modeValue) Type() string   { return "mode" }
func (v modeValue) Range() string  { return "0600 to 0777" }

func (v modeValue) Set(s string) error {
	if !modeForm.MatchString(s) {
		return fmt.Errorf("%q is not a mode such as 0600 or 0660, with which the owner can read and write", s)
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0o"), 8, 32)
	if err != nil {
		return err
	}
	*v.p = fs.FileMode(n)
	return nil
}

// boolValue is a switch.
type boolValue struct{ p *bool }

func (v boolValue) String() string   { return strconv.FormatBool(v.p != nil && *v.p) }
func (v boolValue) Type() string     { return "bool" }
func (v boolValue) Range() string    { return "true, false" }
func (v boolValue) IsBoolFlag() bool { return true }

func (v boolValue) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is not true or false", s)
	}
	*v.p = b
	return nil
}

// addBool declares a switch; the value that p points to is its default.
func addBool(fs *pflag.FlagSet, p *bool, name, shorthand, usage string) {
	fs.VarPF(boolValue{p}, name, shorthand, usage).NoOptDefVal = "true"
}

// listValue is a list of words; the first one given replaces the default. In one text they are parted by commas.
type listValue struct {
	p     *[]string
	given *bool
}

func list(p *[]string) listValue { return listValue{p, new(bool)} }

func (v listValue) String() string {
	if v.p == nil {
		return ""
	}
	return strings.Join(*v.p, ",")
}
func (v listValue) Type() string { return "address" }

func (v listValue) Set(s string) error {
	parts := strings.Split(s, ",")
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
	}
	return v.add(parts)
}

// add takes a list with something in it: nobody who names a setting wants it to be nothing.
func (v listValue) add(parts []string) error {
	if len(parts) == 0 {
		return errors.New("an empty list; leave it out for the default")
	}
	if slices.ContainsFunc(parts, func(part string) bool { return strings.TrimSpace(part) == "" }) {
		return fmt.Errorf("%q holds an empty entry", strings.Join(parts, ","))
	}
	if !*v.given {
		*v.p, *v.given = nil, true
	}
	*v.p = append(*v.p, parts...)
	return nil
}

// stringsValue is a repeatable flag whose values may hold anything, commas too.
type stringsValue struct {
	p    *[]string
	kind string
}

func (v stringsValue) String() string {
	if v.p == nil {
		return ""
	}
	return strings.Join(*v.p, " ")
}
func (v stringsValue) Type() string { return v.kind }

func (v stringsValue) Set(s string) error {
	*v.p = append(*v.p, s)
	return nil
}
