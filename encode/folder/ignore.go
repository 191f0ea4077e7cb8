package folder

import (
	"slices"
	"strings"
)

// rule is one line of a .gitignore file.
type rule struct {
	segments []string // of the pattern; "**" stands for any number of folders
	anywhere bool     // the pattern is of a name, in whatever folder below
	dirs     bool     // for folders only
	keeps    bool     // what it matches is not ignored after all
}

// parseRules reads a .gitignore file as gitignore(5) says. A pattern that is none matches
// nothing.
func parseRules(text string) (rules []rule) {
	text = strings.TrimPrefix(text, "\ufeff") // as editors of Windows begin files
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
			line = line[:len(line)-1]
		}
		if line == "" || line[0] == '#' {
			continue
		}
		var r rule
		if line, r.keeps = strings.CutPrefix(line, "!"); line == "" {
			continue
		}
		if line, r.dirs = strings.CutSuffix(line, "/"); line == "" {
			continue
		}
		r.anywhere = !strings.Contains(line, "/")
		line = strings.TrimPrefix(line, "/")
		r.segments = strings.Split(line, "/")
		rules = append(rules, r)
	}
	return rules
}

// matches tells whether a rule is about a path, which is relative to the folder of its file.
func (r *rule) matches(names []string, dir bool) bool {
	switch {
	case r.dirs && !dir:
		return false
	case r.anywhere:
		return matchName(r.segments[0], names[len(names)-1])
	}
	return matchPath(r.segments, names)
}

// matchPath matches names with segments one by one. Of several "**" only the last one before
// a mismatch needs to take more, so that no pattern takes longer than their product.
func matchPath(segments, names []string) bool {
	at, again, from := 0, -1, 0 // again: the segment behind the last "**", and from where it was tried
	for i := 0; ; {
		switch {
		case at < len(segments) && segments[at] == "**":
			if at == len(segments)-1 {
				return i < len(names) // all that is inside
			}
			at++
			again, from = at, i
		case i < len(names) && at < len(segments) && matchName(segments[at], names[i]):
			at++
			i++
		case i == len(names) && at == len(segments):
			return true
		case again >= 0 && from < len(names):
			from++
			at, i = again, from
		default:
			return false
		}
	}
}

// matchName matches bytes, as git does: an asterisk any number, a question mark one, and a set
// in brackets one of it.
func matchName(pattern, name string) bool {
	at, again, from := 0, -1, 0 // again: what is behind the last asterisk, and from where it was tried
	for i := 0; i < len(name) || at < len(pattern); {
		size := 0 // of the part of the pattern that name[i] matches
		if at < len(pattern) && pattern[at] == '*' {
			at++
			again, from = at, i
			continue
		}
		if at < len(pattern) && i < len(name) {
			switch c := pattern[at]; {
			case c == '[':
				in, n := matchSet(pattern[at:], name[i])
				if n == 0 {
					return false
				}
				if in {
					size = n
				}
			case c == '\\' && at+1 < len(pattern) && pattern[at+1] == name[i]:
				size = 2
			case c == '?', c == name[i] && c != '\\':
				size = 1
			}
		}
		switch {
		case size > 0:
			at, i = at+size, i+1
		case again >= 0 && from < len(name):
			from++
			at, i = again, from
		default:
			return false
		}
	}
	return true
}

// matchSet tells whether a byte is in the set that a pattern begins with, and how long that is;
// 0: it is none.
func matchSet(pattern string, c byte) (in bool, size int) {
	at := 1
	not := at < len(pattern) && (pattern[at] == '!' || pattern[at] == '^')
	if not {
		at++
	}
	before := byte(0) // the begin of a range; 0: it can be none
	for first := true; ; first = false {
		if at >= len(pattern) {
			return false, 0
		}
		p := pattern[at]
		at++
		if p == ']' && !first {
			return in != not, at
		}
		if p == '[' && at < len(pattern) && pattern[at] == ':' {
			if name, _, ends := strings.Cut(pattern[at+1:], "]"); !ends {
				return false, 0
			} else if class, is := strings.CutSuffix(name, ":"); is {
				of := classes[class]
				if of == nil {
					return false, 0
				}
				in = in || c < 0x80 && of(c)
				at, before = at+1+len(name)+1, 0
				continue
			}
		}
		if p == '-' && before > 0 && at < len(pattern) && pattern[at] != ']' {
			if p = pattern[at]; p == '\\' {
				if at++; at == len(pattern) {
					return false, 0
				}
				p = pattern[at]
			}
			at++
			in = in || before <= c && c <= p
			before = 0
			continue
		}
		if p == '\\' {
			if at == len(pattern) {
				return false, 0
			}
			p = pattern[at]
			at++
		}
		in = in || c == p
		before = p
	}
}

// classes are those of POSIX.
var classes = func() map[string]func(byte) bool {
	between := func(lo, hi byte) func(byte) bool { return func(c byte) bool { return lo <= c && c <= hi } }
	either := func(all ...func(byte) bool) func(byte) bool {
		return func(c byte) bool { return slices.ContainsFunc(all, func(is func(byte) bool) bool { return is(c) }) }
	}
	digit, upper, lower := between('0', '9'), between('A', 'Z'), between('a', 'z')
	alpha := either(upper, lower)
	return map[string]func(byte) bool{
		"alnum": either(alpha, digit), "alpha": alpha, "blank": func(c byte) bool { return c == ' ' || c == '\t' }, "cntrl": either(between(0, 31), between(127, 127)),
		"digit": digit, "graph": between('!', '~'), "lower": lower, "print": between(' ', '~'),
		"punct": either(between('!', '/'), between(':', '@'), between('[', '`'), between('{', '~')),
		"space": either(between(' ', ' '), between('\t', '\r')), "upper": upper, "xdigit": either(digit, between('a', 'f'), between('A', 'F')),
	}
}()

// rulesOf are the rules of a file and of those above it.
type rulesOf struct {
	above *rulesOf
	depth int // names of the path of the file's folder
	rules []rule
}

// ignores tells whether a path is ignored; its folder is not.
func (o *rulesOf) ignores(names []string, dir bool) bool {
	for ; o != nil; o = o.above {
		for i := len(o.rules) - 1; i >= 0; i-- { // the last one that matches decides
			if r := &o.rules[i]; r.matches(names[o.depth:], dir) {
				return !r.keeps
			}
		}
	}
	return false
}
