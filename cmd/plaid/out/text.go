package out

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes text safe for a terminal: no control characters, no runs of
// white space, at most limit characters.
func Printable(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:max(limit-1, 0)]) + "…"
}

// Escaped makes text of several lines safe for a terminal without hiding what it
// is: what does not print is written as in a quoted string.
func Escaped(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			b.WriteString(s[:n])
		default:
			b.WriteString(strings.Trim(strconv.Quote(s[:n]), `"`))
		}
		s = s[n:]
	}
	return b.String()
}

// maxQuoted is the longest text that an error repeats, in bytes.
const maxQuoted = 80

// Quoted is a text for an error, shortened.
func Quoted(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(strings.ToValidUTF8(s[:maxQuoted], "")), len(s))
}

// TableID is an id of a query or a document, as a column of a table has room for it.
func TableID(id string) string { return Printable(id, 40) }

// TablePath is a path, as a column of a table has room for it.
func TablePath(path string) string { return Printable(path, 60) }

// TabField is a text of a line whose fields end in tabs: it cannot end one, nor the
// line.
func TabField(s string) string {
	return strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(s)
}
