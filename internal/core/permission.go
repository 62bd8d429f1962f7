package core

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// A Permission says which names somebody may use: topics to publish to or to receive, or groups to join. Allowed is what a
// pattern of the allow list matches and none of the deny list does; the order of the patterns does not matter, deny wins.
// It does not change after NewPermission and is safe for concurrent use.
//
// A nil *Permission allows everything, the zero value nothing.
type Permission struct {
	allow, deny *PatternSet // nil: empty
	key         string

	verdicts atomic.Pointer[verdicts] // nil: nobody has asked
}

// verdicts are what a permission remembers: in each row two names, of those that belong there.
type verdicts [verdictRows][2]atomic.Pointer[verdict]

const verdictRows = 512

// verdict is what a permission has to say about one name.
type verdict struct {
	name    string
	allowed bool
}

var verdictSeed = maphash.MakeSeed()

// NewPermission returns the permission of two lists of patterns, as ParsePattern reads them, either of which may be empty. An
// exclusion is refused: what it would exclude belongs into the deny list. The error wraps ErrPatternInvalid.
func NewPermission(allow, deny []string) (*Permission, error) {
	p := &Permission{}
	var err error
	if p.allow, err = permissionList(allow); err != nil {
		return nil, err
	}
	if p.deny, err = permissionList(deny); err != nil {
		return nil, err
	}
	p.key = permissionKey("+", allow) + permissionKey("-", deny)
	return p, nil
}

func permissionList(patterns []string) (*PatternSet, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	for _, s := range patterns {
		if strings.HasPrefix(s, "!") {
			return nil, fmt.Errorf("%w %s: a permission has no exclusions, it has a list of what is denied", ErrPatternInvalid, quoteShort(s))
		}
	}
	return ParsePatterns(patterns)
}

// permissionKey is a list as a text that is the same for equal lists. A pattern holds no line end.
func permissionKey(sign string, patterns []string) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(patterns)))
	var key strings.Builder
	for _, s := range sorted {
		key.WriteString(sign + s + "\n")
	}
	return key.String()
}

// Match reports whether name is allowed. The cost grows linearly with the length of the name and with the number of patterns.
func (p *Permission) Match(name string) bool {
	if p == nil {
		return true
	}
	return p.allow != nil && p.allow.Match(name) && (p.deny == nil || !p.deny.Match(name))
}

// Allows is Match for a caller that asks about the same names again and again: it remembers some. It allocates nothing for
// those.
func (p *Permission) Allows(name []byte) bool {
	if p == nil {
		return true
	}
	table := p.verdicts.Load()
	if table == nil {
		table = new(verdicts)
		p.verdicts.Store(table) // should two do so at once, a few verdicts are forgotten
	}
	hash := maphash.Bytes(verdictSeed, name)
	row := &table[hash%verdictRows]
	free := hash / verdictRows % 2
	for i := range row {
		v := row[i].Load()
		if v != nil && v.name == string(name) {
			return v.allowed
		}
		if v == nil {
			free = uint64(i)
		}
	}
	v := &verdict{name: string(name)}
	v.allowed = p.Match(v.name)
	row[free].Store(v)
	return v.allowed
}

// Nothing reports whether there is no name that is allowed, as far as that is plain: nothing is on the allow list.
func (p *Permission) Nothing() bool { return p != nil && p.allow == nil }

// Same reports whether two permissions have the same lists, whatever the order of their patterns.
func (p *Permission) Same(other *Permission) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.key == other.key
}

// barred reports whether nothing that the set matches is allowed, as far as that is plain: nothing is allowed at all, or the
// set names topics one by one and none of them is allowed.
func (p *Permission) barred(set *PatternSet) bool {
	if p == nil {
		return false
	}
	return p.Nothing() || !slices.ContainsFunc(set.includes, func(a *patternAlternative) bool {
		return !a.literal() || p.Match(a.text)
	})
}

// admit returns an error if a subscription with these patterns could never receive anything.
func (p *Permission) admit(set *PatternSet) error {
	if !p.barred(set) {
		return nil
	}
	return fmt.Errorf("%w: to receive %s", ErrNotAllowed, quoteShort(set.patterns[0].text))
}
