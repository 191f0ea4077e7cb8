package out

import (
	"strings"
	"unicode"
)

// Colours writes parts of a text in the colours of a terminal, or, without colours, marks them with
// brackets.
type Colours struct{ On bool }

// colour puts s between the escape sequences of a colour.
func (c Colours) colour(code, s string) string {
	if !c.On || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Bold formats a heading, or a question.
func (c Colours) Bold(s string) string { return c.colour("1", s) }

// Dim formats what matters less.
func (c Colours) Dim(s string) string { return c.colour("2", s) }

// Name formats the id of a document.
func (c Colours) Name(s string) string { return c.colour("35", s) }

// Good formats a success, such as a document that was found.
func (c Colours) Good(s string) string { return c.colour("32", s) }

// Bad formats a failure, such as a document that was not found.
func (c Colours) Bad(s string) string { return c.colour("33", s) }

// Marks around the parts of a text that are highlighted. [Clean] removes them from texts that come
// from elsewhere.
const (
	MarkBegin = "\x01"
	MarkEnd   = "\x02"
)

// Clean replaces the characters of a text that a terminal would interpret. White space stays.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Wrap breaks a clean text with marks into lines of at most width columns. The last of at most
// lines lines is cut off, and ends in "…".
func (c Colours) Wrap(s string, width, lines int) []string {
	var wrapped []string
	words := strings.Fields(s)
	for len(words) > 0 && len(wrapped) < lines-1 {
		n, lineWidth := 1, c.textWidth(words[0])
		for n < len(words) && lineWidth+1+c.textWidth(words[n]) <= width {
			lineWidth += 1 + c.textWidth(words[n])
			n++
		}
		if lineWidth > width { // a single word: split it
			fitting, remainder := c.split(words[0], width)
			wrapped, words[0] = append(wrapped, fitting), remainder
			continue
		}
		wrapped, words = append(wrapped, strings.Join(words[:n], " ")), words[n:]
	}
	if lastLine := strings.Join(words, " "); lastLine != "" {
		if c.textWidth(lastLine) > width {
			lastLine, _ = c.split(lastLine, max(width-1, 0))
			lastLine += "…"
		}
		wrapped = append(wrapped, lastLine)
	}
	return c.replaceMarks(wrapped)
}

// columns returns the number of columns of a character: marks become escape sequences, which take
// none.
func (c Colours) columns(r rune) int {
	if c.On && strings.ContainsRune(MarkBegin+MarkEnd, r) {
		return 0
	}
	return 1
}

// textWidth returns the number of columns of a text.
func (c Colours) textWidth(s string) (n int) {
	for _, r := range s {
		n += c.columns(r)
	}
	return n
}

// split cuts a text after as many characters as fit into width columns.
func (c Colours) split(s string, width int) (fitting, remainder string) {
	n := 0
	for i, r := range s {
		if n += c.columns(r); n > width {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// replaceMarks replaces marks with colours or brackets. A marked part that goes on in the next line
// is marked again there; one that was cut off ends with its line.
func (c Colours) replaceMarks(lines []string) []string {
	begin, end := "[", "]"
	if c.On {
		begin, end = "\x1b[1;31m", "\x1b[0m"
	}
	open := false
	for i, l := range lines {
		if open && c.On {
			l = MarkBegin + l
		}
		open = strings.LastIndex(l, MarkBegin) > strings.LastIndex(l, MarkEnd)
		if open && (c.On || i == len(lines)-1) {
			l += MarkEnd
		}
		lines[i] = strings.NewReplacer(MarkBegin, begin, MarkEnd, end).Replace(l)
	}
	return lines
}
