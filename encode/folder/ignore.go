package folder

import (
	"slices"
	"strings"
)

// rule is one line of a .gitignore file.
type rule struct {
	segments []string // of the pattern. "**" matches any number of folders
	anywhere bool     // the pattern is a name, and matches in any folder below
	dirs     bool     // it matches folders only
	keeps    bool     // paths that it matches are not ignored
}

// parseRules parses a .gitignore file as gitignore(5) describes it. An invalid pattern matches
// nothing.
func parseRules(text string) (rules []rule) {
	text = strings.TrimPrefix(text, "\ufeff") // editors on Windows write a byte order mark
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

// matches reports whether a rule matches a path, which is relative to the folder of its file.
func (r *rule) matches(names []string, dir bool) bool {
	switch {
	case r.dirs && !dir:
		return false
	case r.anywhere:
		return matchName(r.segments[0], names[len(names)-1])
	}
	return matchPath(r.segments, names)
}

// matchPath matches names with segments one by one. After a mismatch, only the last "**" before it has to
// match more names, so that the time is at most the product of the lengths.
func matchPath(segments, names []string) bool {
	segment := 0
	retry, from := -1, 0 // the segment after the last "**", and the name from which it was tried
	for i := 0; ; {
		switch {
		case segment < len(segments) && segments[segment] == "**":
			if segment == len(segments)-1 {
				return i < len(names) // a final "**" matches everything in the folder
			}
			segment++
			retry, from = segment, i
		case i < len(names) && segment < len(segments) && matchName(segments[segment], names[i]):
			segment++
			i++
		case i == len(names) && segment == len(segments):
			return true
		case retry >= 0 && from < len(names):
			from++
			segment, i = retry, from
		default:
			return false
		}
	}
}

// matchName matches a name byte by byte, as git does: an asterisk matches any number of bytes, a question
// mark one byte, and a set in brackets one byte of the set.
func matchName(pattern, name string) bool {
	p := 0
	retry, from := -1, 0 // the offset after the last asterisk, and the byte of name from which it was tried
	for i := 0; i < len(name) || p < len(pattern); {
		size := 0 // bytes of the pattern that name[i] matches. 0 means that it does not match
		if p < len(pattern) && pattern[p] == '*' {
			p++
			retry, from = p, i
			continue
		}
		if p < len(pattern) && i < len(name) {
			switch c := pattern[p]; {
			case c == '[':
				in, n := matchSet(pattern[p:], name[i])
				if n == 0 {
					return false
				}
				if in {
					size = n
				}
			case c == '\\' && p+1 < len(pattern) && pattern[p+1] == name[i]:
				size = 2
			case c == '?', c == name[i] && c != '\\':
				size = 1
			}
		}
		switch {
		case size > 0:
			p, i = p+size, i+1
		case retry >= 0 && from < len(name):
			from++
			p, i = retry, from
		default:
			return false
		}
	}
	return true
}

// matchSet reports whether a byte is in the set that a pattern begins with, and returns the length of the
// set. Length 0 means that it is not closed.
func matchSet(pattern string, c byte) (in bool, size int) {
	next := 1
	negated := next < len(pattern) && (pattern[next] == '!' || pattern[next] == '^')
	if negated {
		next++
	}
	low := byte(0) // the possible begin of a range, or 0
	for first := true; ; first = false {
		if next >= len(pattern) {
			return false, 0
		}
		p := pattern[next]
		next++
		// The end of the set.
		if p == ']' && !first {
			return in != negated, next
		}
		// A class such as [:alpha:].
		if p == '[' && next < len(pattern) && pattern[next] == ':' {
			if name, _, closed := strings.Cut(pattern[next+1:], "]"); !closed {
				return false, 0
			} else if class, isClass := strings.CutSuffix(name, ":"); isClass {
				contains := classes[class]
				if contains == nil {
					return false, 0
				}
				in = in || c < 0x80 && contains(c)
				next, low = next+1+len(name)+1, 0
				continue
			}
		}
		// A range such as a-z.
		if p == '-' && low > 0 && next < len(pattern) && pattern[next] != ']' {
			if p = pattern[next]; p == '\\' {
				if next++; next == len(pattern) {
					return false, 0
				}
				p = pattern[next]
			}
			next++
			in = in || low <= c && c <= p
			low = 0
			continue
		}
		// A byte.
		if p == '\\' {
			if next == len(pattern) {
				return false, 0
			}
			p = pattern[next]
			next++
		}
		in = in || c == p
		low = p
	}
}

// classes are the classes of characters of POSIX, by their names.
var classes = func() map[string]func(byte) bool {
	between := func(lo, hi byte) func(byte) bool { return func(c byte) bool { return lo <= c && c <= hi } }
	either := func(all ...func(byte) bool) func(byte) bool {
		return func(c byte) bool { return slices.ContainsFunc(all, func(is func(byte) bool) bool { return is(c) }) }
	}
	digit, upper, lower := between('0', '9'), between('A', 'Z'), between('a', 'z')
	alpha := either(upper, lower)
	return map[string]func(byte) bool{
		"alnum":  either(alpha, digit),
		"alpha":  alpha,
		"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
		"cntrl":  either(between(0, 31), between(127, 127)),
		"digit":  digit,
		"graph":  between('!', '~'),
		"lower":  lower,
		"print":  between(' ', '~'),
		"punct":  either(between('!', '/'), between(':', '@'), between('[', '`'), between('{', '~')),
		"space":  either(between(' ', ' '), between('\t', '\r')),
		"upper":  upper,
		"xdigit": either(digit, between('a', 'f'), between('A', 'F')),
	}
}()

// ruleChain is the rules of a file, followed by those of the files above it, which count less.
type ruleChain struct {
	above *ruleChain
	depth int // names in the path of the file's folder
	rules []rule
}

// ignores reports whether a path is ignored. The caller has checked its folder.
func (o *ruleChain) ignores(names []string, dir bool) bool {
	for ; o != nil; o = o.above {
		for i := len(o.rules) - 1; i >= 0; i-- { // the last one that matches decides
			if r := &o.rules[i]; r.matches(names[o.depth:], dir) {
				return !r.keeps
			}
		}
	}
	return false
}
