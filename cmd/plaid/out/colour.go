package out

import (
	"strings"
	"unicode"
)

// Colours are those of a terminal. Without them parts of texts are marked in brackets.
type Colours struct{ On bool }

func (c Colours) colour(code, s string) string {
	if !c.On || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Bold is a heading, or a question.
func (c Colours) Bold(s string) string { return c.colour("1", s) }

// Dim is what is beside the point.
func (c Colours) Dim(s string) string { return c.colour("2", s) }

// Name is a document.
func (c Colours) Name(s string) string { return c.colour("35", s) }

// Good is what was found, and Bad what was not.
func (c Colours) Good(s string) string { return c.colour("32", s) }

// Bad is what was not found.
func (c Colours) Bad(s string) string { return c.colour("33", s) }

// Texts that are marked have these around the parts; [Clean] leaves none of them in what is
// somebody else's.
const (
	MarkBegin = "\x01"
	MarkEnd   = "\x02"
)

// Clean is a text without what a terminal would do something with. White space stays.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Wrap breaks a clean text with marks into lines of some characters; what has no room in
// the last of them is cut off.
func (c Colours) Wrap(s string, width, lines int) []string {
	var wrapped []string
	words := strings.Fields(s)
	for len(words) > 0 && len(wrapped) < lines-1 {
		n, lineWidth := 1, c.textWidth(words[0])
		for n < len(words) && lineWidth+1+c.textWidth(words[n]) <= width {
			lineWidth += 1 + c.textWidth(words[n])
			n++
		}
		if lineWidth > width { // one word: what does not fit goes on in the next line
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

// columns is how many a character takes.
func (c Colours) columns(r rune) int {
	if c.On && strings.ContainsRune(MarkBegin+MarkEnd, r) {
		return 0
	}
	return 1
}

func (c Colours) textWidth(s string) (n int) {
	for _, r := range s {
		n += c.columns(r)
	}
	return n
}

// split is as much of a text as some columns hold, and the rest.
func (c Colours) split(s string, width int) (fitting, remainder string) {
	n := 0
	for i, r := range s {
		if n += c.columns(r); n > width {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// replaceMarks puts colours or brackets in the place of marks. A part that goes on in the next line
// begins there again; one that was cut ends.
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
