package encode

import (
	"iter"
	"slices"
	"strings"
)

// section is the text from a heading to the next one. A heading without text
// below it belongs to the next section.
type section struct {
	start, end int
	above      []string // the headings above its own: the title of its first passage, whose text has its own
	path       []string // above and its own heading: the title of its other passages
}

// sections splits a Markdown text at its headings, as CommonMark defines them. Headings inside
// quotations and items of lists do not count.
func sections(text string) (found []section) {
	var titles [6]string
	last, body := section{}, 0 // body is where the heading of last ends
	endSection := func(end int) {
		last.end = end
		switch {
		case strings.TrimSpace(text[body:end]) != "":
			found = append(found, last)
			last = section{start: end}
		case end < len(text): // an empty section: it continues into the next one
		case len(found) > 0: // an empty section at the end belongs to the one before
			found[len(found)-1].end = end
		case body > 0: // only headings
			found = append(found, last)
		}
	}
	for h := range headings(text) {
		endSection(h.start)
		titles[h.level-1] = h.title
		clear(titles[h.level:])
		var above []string
		for _, t := range titles[:h.level-1] {
			above = append(above, nonEmpty(t)...)
		}
		if last.start < h.start { // the section begins with headings without text: keep the headings above all of them
			common := 0
			for common < min(len(last.above), len(above)) && last.above[common] == above[common] {
				common++
			}
			last.above = above[:common]
		} else {
			last.above = above
		}
		last.path, body = slices.Concat(above, nonEmpty(h.title)), h.end
	}
	endSection(len(text))
	return found
}

// heading is a heading of a text: the bytes of its lines, its level from 1 to 6, and its title.
type heading struct {
	start, end, level int
	title             string
}

// verbatim lists blocks of HTML that are not Markdown: from a line that begins with begin to a line
// that contains end.
var verbatim = []struct{ begin, end string }{
	{"<!--", "-->"}, {"<pre", "</pre>"}, {"<script", "</script>"}, {"<style", "</style>"}, {"<textarea", "</textarea>"},
}

// headings yields the headings of a Markdown text in order: lines that begin with #, and paragraphs
// above a line of = or -.
func headings(text string) iter.Seq[heading] {
	return func(yield func(heading) bool) {
		var (
			endsBlock   func(line string, indent int) bool // reports the end of code or HTML. nil means Markdown
			paragraph   = -1                               // offset of the current paragraph; -1 means none
			inContainer bool                               // in a list or quotation, whose paragraph continues
		)
		next := 0
		for next < len(text) {
			// Read a line.
			begin := next
			next = len(text)
			if n := strings.IndexByte(text[begin:], '\n'); n >= 0 {
				next = begin + n + 1
			}
			line, indent := unindent(strings.TrimRight(text[begin:next], " \t\r\n"))
			// Skip code, HTML and front matter.
			if endsBlock != nil {
				if endsBlock(line, indent) {
					endsBlock = nil
				}
				continue
			}
			if begin == 0 && line == "---" && indent == 0 { // front matter, if it ends
				if closesFrontMatter(text[next:]) {
					endsBlock = func(line string, indent int) bool {
						return indent == 0 && (line == "---" || line == "...")
					}
					continue
				}
			}
			// Find a heading.
			h := heading{start: begin, end: next}
			switch {
			case line == "":
				paragraph, inContainer = -1, false
				continue
			case indent > 3: // code, or a line of the paragraph
				continue
			case paragraph >= 0 && underlineLevel(line) > 0:
				h.start, h.level = paragraph, underlineLevel(line)
				h.title = strings.Join(strings.Fields(text[paragraph:begin]), " ")
			default:
				h.level, h.title = parseHashHeading(line)
			}
			if h.level > 0 {
				paragraph, inContainer = -1, false
				if !yield(h) {
					return
				}
				continue
			}
			// Other lines begin code or HTML, end a paragraph, or belong to one.
			if endsBlock = blockEnd(line); endsBlock != nil {
				paragraph, inContainer = -1, false
				continue
			}
			switch {
			case isThematicBreak(line):
				paragraph, inContainer = -1, false
			case beginsContainer(line, paragraph >= 0):
				paragraph, inContainer = -1, true
			case paragraph < 0 && !inContainer:
				paragraph = begin
			}
		}
	}
}

// isThematicBreak reports whether a line, which is not empty, is a rule, such as * * * or ---.
func isThematicBreak(line string) bool {
	mark := line[:1]
	return strings.Contains("*-_", mark) && strings.Count(line, mark) > 2 && strings.Trim(line, mark+" \t") == ""
}

// unindent returns a line without the white space before it, and the columns of that.
func unindent(line string) (rest string, columns int) {
	for i := range len(line) {
		switch line[i] {
		case ' ':
			columns++
		case '\t':
			columns += 4 - columns%4
		default:
			return line[i:], columns
		}
	}
	return "", columns
}

// closesFrontMatter reports whether text, which follows a first line ---, begins with data up to a
// second such line or a line of dots.
func closesFrontMatter(text string) bool {
	for line := range strings.Lines(text) {
		switch strings.TrimRight(line, " \t\r\n") {
		case "---", "...":
			return true
		case "":
			return false
		}
	}
	return false
}

// parseHashHeading returns the level and the title of a line that begins with #; level 0 means that it is
// not a heading. A run of # at its end, after a blank, does not belong to the title.
func parseHashHeading(line string) (level int, title string) {
	after := strings.TrimLeft(line, "#")
	level = len(line) - len(after)
	if level < 1 || level > 6 || after != "" && after[0] != ' ' && after[0] != '\t' {
		return 0, ""
	}
	title = strings.TrimRight(after, "#")
	if title != "" && !strings.HasSuffix(title, " ") && !strings.HasSuffix(title, "\t") {
		title = after
	}
	return level, strings.Trim(title, " \t")
}

// underlineLevel returns the level of the heading that a line of = or - makes of the paragraph above it;
// 0 means that the line, which is not empty, is not an underline.
func underlineLevel(line string) int {
	switch {
	case strings.Trim(line, "=") == "":
		return 1
	case strings.Trim(line, "-") == "":
		return 2
	}
	return 0
}

// blockEnd returns a function that reports whether a line ends the code or HTML that this line
// begins. nil means that it begins neither.
func blockEnd(line string) func(line string, indent int) bool {
	fence := line[:len(line)-len(strings.TrimLeft(line, line[:1]))]
	isFence := len(fence) > 2 && (fence[0] == '~' || fence[0] == '`' && !strings.Contains(line[len(fence):], "`"))
	if isFence {
		return func(line string, indent int) bool {
			return indent < 4 && len(line) >= len(fence) && strings.Trim(line, fence[:1]) == ""
		}
	}
	lower := strings.ToLower(line)
	for _, v := range verbatim {
		after, found := strings.CutPrefix(lower, v.begin)
		wholeTag := v.end == "-->" || after == "" || strings.ContainsAny(after[:1], " \t>")
		if found && wholeTag && !strings.Contains(after, v.end) {
			return func(line string, _ int) bool { return strings.Contains(strings.ToLower(line), v.end) }
		}
	}
	return nil
}

// beginsContainer reports whether a line begins a quotation or an item of a list. In a paragraph, only
// an item that has text, and the number 1 if it is numbered, ends it.
func beginsContainer(line string, inParagraph bool) bool {
	if line[0] == '>' {
		return true
	}
	marker := strings.TrimLeft(line, "0123456789")
	number := line[:len(line)-len(marker)]
	switch {
	case marker == "" || len(number) > 9: // CommonMark allows nine digits
		return false
	case number == "" && !strings.ContainsRune("-+*", rune(marker[0])),
		number != "" && !strings.ContainsRune(".)", rune(marker[0])):
		return false
	case len(marker) == 1:
		return !inParagraph
	}
	return (marker[1] == ' ' || marker[1] == '\t') && (!inParagraph || number == "" || number == "1")
}
