package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

const maxConfigSize = 1 << 20

// configFile is a configuration file that was read but not yet understood.
type configFile struct {
	path  string
	data  []byte
	stays bool // it is a file, which can be read again, and not a pipe
	// By viper key, filled by check: where it is set, and what is written there, a string or []string.
	lines   map[string]int
	written map[string]any
}

func readConfigFile(path string) (*configFile, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(fmt.Errorf("configuration file %s: %s", path, rootCause(err)),
			"--config none does without one; tinybroker serve --config none --print-config prints one to begin with")
	}
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %s", path, rootCause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfigSize+1))
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %s", path, rootCause(err))
	}
	if len(data) > maxConfigSize {
		return nil, fmt.Errorf("configuration file %s: larger than %s", path, exactSize(maxConfigSize))
	}
	info, err := f.Stat()
	stays := err == nil && info.Mode().IsRegular()
	return &configFile{path: path, data: data, stays: stays, lines: map[string]int{}, written: map[string]any{}}, nil
}

func (f *configFile) has(key string) bool { return f.lines[key] > 0 }

// at is the place where a key is set, as compilers print it.
func (f *configFile) at(key string) string { return fmt.Sprintf("%s:%d", f.path, f.lines[key]) }

func (f *configFile) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", f.path, line, fmt.Sprintf(format, args...))
}

// check finds what a lenient reader would pass over: unknown keys, keys given twice, values of the wrong kind, a second
// document. It notes where each key is set. Ranges are the settings' own business.
func (f *configFile) check() []error {
	d := yaml.NewDecoder(bytes.NewReader(f.data))
	var doc, more yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // an empty file
	case err != nil:
		return []error{f.syntaxError(err)}
	}
	if err := d.Decode(&more); err == nil {
		return []error{f.errorf(more.Line, "a second YAML document; one is enough")}
	} else if !errors.Is(err, io.EOF) {
		return []error{f.syntaxError(err)}
	}
	return f.checkSection(sectionServe, doc.Content[0])
}

func (f *configFile) checkSection(section string, n *yaml.Node) []error {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return []error{f.errorf(n.Line, "%s where settings belong (name: value)", kindOf(n))}
	}
	var errs []error
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if first, twice := seen[key.Value]; twice {
			errs = append(errs, f.errorf(key.Line, "%q is set twice, first in line %d", key.Value, first))
			continue
		}
		seen[key.Value] = key.Line
		errs = append(errs, f.checkKey(section, key, value)...)
	}
	return errs
}

func (f *configFile) checkKey(section string, key, value *yaml.Node) []error {
	if section == sectionServe && key.Value == sectionClient {
		return f.checkSection(sectionClient, value)
	}
	flag := settingsOf(section)[key.Value]
	if key.Kind != yaml.ScalarNode || flag == nil {
		return []error{f.errorf(key.Line, "unknown key %q%s", key.Value, suggestKey(section, key.Value))}
	}
	if isNull(value) {
		if isNotBlank(flag) {
			f.lines[viperKey(flag)], f.written[viperKey(flag)] = key.Line, ""
		}
		return nil // as if it were not there
	}
	_, takesList := flag.Value.(listValue)
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	var written any = value.Value
	switch {
	case value.Kind == yaml.ScalarNode:
	case value.Kind == yaml.SequenceNode && takesList:
		items := []string{}
		for _, item := range value.Content {
			if item.Kind != yaml.ScalarNode || isNull(item) {
				return []error{f.errorf(item.Line, "%s: %s inside a list of values", key.Value, kindOf(item))}
			}
			items = append(items, item.Value)
		}
		written = items
	default:
		return []error{f.errorf(value.Line, "%s: %s where a value belongs", key.Value, kindOf(value))}
	}
	f.lines[viperKey(flag)], f.written[viperKey(flag)] = key.Line, written
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a value"
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntaxError puts the line where it is looked for.
func (f *configFile) syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = strings.Replace(text, m[0], "", 1)
	}
	if at := bytes.Split(f.data, []byte("\n")); line <= len(at) && bytes.Contains(at[line-1], []byte("\t")) {
		text += " (YAML is indented with spaces, not with tabs)"
	}
	return f.errorf(line, "%s", text)
}

// settingsOf are the flags that a section of the file may name, by key.
func settingsOf(section string) map[string]*pflag.Flag {
	fs := pflag.NewFlagSet(section, pflag.ContinueOnError)
	if section == sectionClient {
		newClientOptions().addFlags(fs)
	} else {
		newServeOptions().addFlags(fs)
	}
	keys := map[string]*pflag.Flag{}
	fs.VisitAll(func(f *pflag.Flag) {
		if sectionOf(f) != "" {
			keys[fileKey(f.Name)] = f
		}
	})
	return keys
}

// suggestKey names the key that was probably meant, or the section where the key is known.
func suggestKey(section, key string) string {
	other, where := sectionClient, "under client:"
	if section == sectionClient {
		other, where = sectionServe, "at the top level"
	}
	if settingsOf(other)[key] != nil {
		return "; it belongs " + where
	}
	var names []string
	for name := range settingsOf(section) {
		names = append(names, name)
	}
	if near := nearest(key, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}
