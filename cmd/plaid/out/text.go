package out

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes a text safe for one line of a terminal: without control characters, with single
// blanks for white space, and with at most limit characters.
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

// Escaped makes a text of several lines safe for a terminal and keeps its content visible:
// characters that do not print are written as in a quoted string.
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

// maxQuoted is the length in bytes of the longest text that an error repeats in full.
const maxQuoted = 80

// Quoted quotes a text for an error, and shortens a long one.
func Quoted(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(strings.ToValidUTF8(s[:maxQuoted], "")), len(s))
}

// TableID shortens the id of a query or a document to the width of a table's column.
func TableID(id string) string { return Printable(id, 40) }

// TablePath shortens a path to the width of a table's column.
func TablePath(path string) string { return Printable(path, 60) }

// TabField replaces tabs and ends of lines in a field of a line whose fields are separated by tabs.
func TabField(s string) string {
	return strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(s)
}
