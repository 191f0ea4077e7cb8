package folder

import (
	"path"
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
		for i, s := range r.segments {
			r.segments[i] = strings.ReplaceAll(s, "[!", "[^")
		}
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

func matchName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

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
