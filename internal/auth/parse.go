package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// The most there may be in one auth file. Every call is compared with all tokens.
const (
	maxIdentities = 1000
	maxTokens     = 4096
)

// FileErrors are all that is wrong with a file, each with its place.
type FileErrors []error

// Error lists them, one a line.
func (m FileErrors) Error() string { return errors.Join(m...).Error() }

// Unwrap returns them one by one.
func (m FileErrors) Unwrap() []error { return m }

// Parse reads data, which is that of the auth file at path. When anything is wrong with it there are no identities at all; the
// error is then FileErrors, with everything that was found.
func Parse(path string, data []byte) (*Identities, error) {
	p := &parser{
		path:  path,
		ids:   &Identities{certificates: map[string]*Identity{}},
		names: map[string]int{}, digests: map[digest]int{}, certificates: map[string]int{},
	}
	p.document(data)
	if len(p.mistakes) > 0 {
		return nil, p.mistakes
	}
	return p.ids, nil
}

// parser reads one auth file. The lines tell where something was first met.
type parser struct {
	path     string
	ids      *Identities
	mistakes FileErrors

	names        map[string]int
	digests      map[digest]int
	certificates map[string]int
}

func (p *parser) fail(line int, format string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Errorf("%s:%d: %s", p.path, line, fmt.Sprintf(format, args...)))
}

func (p *parser) document(data []byte) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		p.fail(1, "names no identity; nobody could do anything")
		return
	case err != nil:
		p.syntax(err)
		return
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		p.fail(max(1, more.Line), "a second YAML document; one is enough")
		return
	}
	found := false
	for _, e := range p.entries(doc.Content[0], "identities") {
		found = true
		p.identities(e.value)
	}
	if !found && len(p.mistakes) == 0 {
		p.fail(1, "names no identity; nobody could do anything")
	}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntax says where the file is no YAML. The parser's own words are left out: they may hold what is written there.
func (p *parser) syntax(err error) {
	line := 1
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	p.fail(line, "is not YAML from here on, or from shortly before; look at the indentation and the colons")
}

// entry is one key of a map with its value.
type entry struct {
	key   string
	line  int
	value *yaml.Node
}

var plainKey = regexp.MustCompile(`^[a-z_]{1,30}$`)

// entries returns the entries of a map, which may have these keys and no others, each once.
func (p *parser) entries(n *yaml.Node, keys ...string) []entry {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		p.fail(n.Line, "%s where a map with %s belongs", kindOf(n), strings.Join(keys, ", "))
		return nil
	}
	var list []entry
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		known := false
		for _, k := range keys {
			known = known || k == key.Value
		}
		switch {
		case !known && key.Value == "token":
			p.fail(key.Line, "unknown key token; the file holds no tokens but their hashes, as token_hash")
		case !known && plainKey.MatchString(key.Value):
			p.fail(key.Line, "unknown key %s; there are %s", key.Value, strings.Join(keys, ", "))
		case !known:
			p.fail(key.Line, "unknown key; there are %s", strings.Join(keys, ", "))
		case first[key.Value] > 0:
			p.fail(key.Line, "%s is set twice, first in line %d", key.Value, first[key.Value])
		default:
			first[key.Value] = key.Line
			list = append(list, entry{key.Value, key.Line, follow(value)})
		}
	}
	return list
}

func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return "a value"
}

func (p *parser) identities(n *yaml.Node) {
	switch {
	case n.Kind != yaml.SequenceNode:
		p.fail(n.Line, "identities: %s where a list of at least one identity belongs", kindOf(n))
		return
	case len(n.Content) == 0:
		p.fail(n.Line, "identities: is empty; there must be at least one identity")
		return
	}
	for _, item := range n.Content {
		p.identity(item)
	}
	if len(p.ids.all) > maxIdentities {
		p.fail(n.Line, "%d identities, the most is %d", len(p.ids.all), maxIdentities)
	}
	if len(p.ids.tokens) > maxTokens {
		p.fail(n.Line, "%d tokens, the most is %d", len(p.ids.tokens), maxTokens)
	}
}

func (p *parser) identity(n *yaml.Node) {
	before := len(p.mistakes)
	id := &Identity{Publish: &core.Permission{}, Subscribe: &core.Permission{}, Group: &core.Permission{}}
	credentials, named := 0, false
	for _, e := range p.entries(n, "name", "token_hash", "certificate_names", "publish", "subscribe", "group", "admin") {
		switch e.key {
		case "name":
			named = true
			id.Name = p.name(e)
		case "token_hash":
			credentials += p.tokens(e, id)
		case "certificate_names":
			credentials += p.certificateNames(e, id)
		case "publish":
			id.Publish = p.permission(e)
		case "subscribe":
			id.Subscribe = p.permission(e)
		case "group":
			id.Group = p.permission(e)
		case "admin":
			id.Admin = p.boolean(e)
		}
	}
	p.ids.all = append(p.ids.all, id)
	if len(p.mistakes) > before {
		return
	}
	if !named {
		p.fail(n.Line, "an identity without a name")
	}
	if credentials == 0 {
		p.fail(n.Line, "an identity with neither token_hash nor certificate_names: nobody could be it")
	}
}

func (p *parser) name(e entry) string {
	if e.value.Kind != yaml.ScalarNode || e.value.Tag == "!!null" || strings.TrimSpace(e.value.Value) == "" {
		p.fail(e.line, "name: %s where a name belongs", kindOf(e.value))
		return ""
	}
	name := e.value.Value
	if err := core.ValidateName("name", name); err != nil {
		p.fail(e.line, "%s", strings.TrimPrefix(err.Error(), core.ErrProtocol.Error()+": "))
	}
	if first := p.names[name]; first > 0 {
		p.fail(e.line, "name: there is an identity of this name already, in line %d", first)
	}
	p.names[name] = e.line
	return name
}

func (p *parser) tokens(e entry, id *Identity) (n int) {
	for _, item := range p.texts(e, true) {
		n++
		d, err := parseHash(item.Value)
		if err != nil {
			p.fail(item.Line, "token_hash: %v", err)
			continue
		}
		if first := p.digests[d]; first > 0 {
			p.fail(item.Line, "token_hash: the same as in line %d; a token belongs to one identity", first)
		}
		p.digests[d] = item.Line
		p.ids.tokens = append(p.ids.tokens, knownToken{d, id})
	}
	return n
}

func (p *parser) certificateNames(e entry, id *Identity) (n int) {
	for _, item := range p.texts(e, true) {
		n++
		kind, name, ok := strings.Cut(item.Value, ":")
		if !ok || name == "" || kind != "cn" && kind != "dns" && kind != "uri" {
			p.fail(item.Line, "certificate_names: a name is cn:NAME (common name), dns:NAME or uri:NAME")
			continue
		}
		if first := p.certificates[item.Value]; first > 0 {
			p.fail(item.Line, "certificate_names: the same as in line %d; a name belongs to one identity", first)
		}
		p.certificates[item.Value] = item.Line
		p.ids.certificates[item.Value] = id
	}
	return n
}

func (p *parser) permission(e entry) *core.Permission {
	var allow, deny []string
	for _, list := range p.entries(e.value, "allow", "deny") {
		which := list.key
		list.key = e.key + ": " + which
		var patterns []string
		for _, item := range p.texts(list, false) {
			if _, err := core.NewPermission([]string{item.Value}, nil); err != nil {
				p.fail(item.Line, "%s: %v", list.key, err)
				continue
			}
			patterns = append(patterns, item.Value)
		}
		if which == "allow" {
			allow = patterns
		} else {
			deny = patterns
		}
	}
	if len(deny) > 0 && len(allow) == 0 {
		p.fail(e.line, "%s: what is denied is denied anyway: nothing is allowed unless allow says so", e.key)
	}
	may, err := core.NewPermission(allow, deny)
	if err != nil {
		p.fail(e.line, "%s: %v", e.key, err)
		return &core.Permission{}
	}
	return may
}

func (p *parser) boolean(e entry) bool {
	var is bool
	if e.value.Kind != yaml.ScalarNode || e.value.Tag != "!!bool" || e.value.Decode(&is) != nil {
		p.fail(e.line, "%s: neither true nor false", e.key)
		return false
	}
	return is
}

// texts are the items of a list, or the one text that stands in its place. An empty list and a blank item are mistakes; what is
// there is not repeated in them.
func (p *parser) texts(e entry, needed bool) []*yaml.Node {
	items := e.value.Content
	switch {
	case e.value.Kind == yaml.ScalarNode && e.value.Tag != "!!null":
		items = []*yaml.Node{e.value}
	case e.value.Kind != yaml.SequenceNode:
		p.fail(e.line, "%s: %s where a list belongs", e.key, kindOf(e.value))
		return nil
	}
	if len(items) == 0 && needed {
		p.fail(e.line, "%s: is empty; leave it out", e.key)
	}
	var texts []*yaml.Node
	for _, item := range items {
		item = follow(item)
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || strings.TrimSpace(item.Value) == "" {
			p.fail(item.Line, "%s: %s inside a list of texts", e.key, blankKind(item))
			continue
		}
		texts = append(texts, item)
	}
	return texts
}

func blankKind(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return "a blank entry"
	}
	return kindOf(n)
}
