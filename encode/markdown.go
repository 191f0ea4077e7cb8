package encode

import (
	"iter"
	"slices"
	"strings"
)

// section is what lies between two headings, the first of which belongs to it. One that has
// nothing below it belongs to the next section.
type section struct {
	start, end int
	above      []string // headings that it is below; it begins with its own
	path       []string // these and its own
}

// sections are those of a text in Markdown, by the headings of CommonMark. Those that a
// quotation or an item of a list begins with do not count.
func sections(text string) (all []section) {
	var titles [6]string
	last, body := section{}, 0 // body is where the heading of last ends
	end := func(at int) {
		last.end = at
		switch {
		case strings.TrimSpace(text[body:at]) != "":
			all = append(all, last)
			last = section{start: at}
		case at < len(text):
		case len(all) > 0:
			all[len(all)-1].end = at
		case body > 0:
			all = append(all, last)
		}
	}
	for h := range headings(text) {
		end(h.start)
		titles[h.level-1] = h.title
		clear(titles[h.level:])
		var above []string
		for _, t := range titles[:h.level-1] {
			above = append(above, nonEmpty(t)...)
		}
		if last.start < h.start { // with headings that have nothing below them
			n := 0
			for n < min(len(last.above), len(above)) && last.above[n] == above[n] {
				n++
			}
			last.above = above[:n]
		} else {
			last.above = above
		}
		last.path, body = slices.Concat(above, nonEmpty(h.title)), h.end
	}
	end(len(text))
	return all
}

// heading is one of a text: its bytes, with all of its lines.
type heading struct {
	start, end, level int
	title             string
}

// verbatim is what is no Markdown: where a line begins so, up to one that has the end.
var verbatim = []struct{ begin, end string }{
	{"<!--", "-->"}, {"<pre", "</pre>"}, {"<script", "</script>"}, {"<style", "</style>"}, {"<textarea", "</textarea>"},
}

// headings are those of a text in Markdown, in order: lines that begin with #, and paragraphs
// above a line of = or -.
func headings(text string) iter.Seq[heading] {
	return func(yield func(heading) bool) {
		var (
			until     func(line string, indent int) bool // ends code and what else is no Markdown
			paragraph = -1                               // where it begins
			inside    bool                               // a list or a quotation, whose paragraph goes on
		)
		for at := 0; at < len(text); {
			begin, next := at, len(text)
			if n := strings.IndexByte(text[at:], '\n'); n >= 0 {
				next = at + n + 1
			}
			at = next
			line, indent := unindent(strings.TrimRight(text[begin:next], " \t\r\n"))
			if until != nil {
				if until(line, indent) {
					until = nil
				}
				continue
			}
			if begin == 0 && line == "---" && indent == 0 { // front matter, if it ends
				if frontMatter(text[next:]) {
					until = func(line string, indent int) bool { return indent == 0 && (line == "---" || line == "...") }
					continue
				}
			}
			h := heading{start: begin, end: next}
			switch {
			case line == "":
				paragraph, inside = -1, false
				continue
			case indent > 3: // code, if it is not of a paragraph
				continue
			case paragraph >= 0 && underline(line) > 0:
				h.start, h.level = paragraph, underline(line)
				h.title = strings.Join(strings.Fields(text[paragraph:begin]), " ")
			default:
				h.level, h.title = hashes(line)
			}
			if h.level > 0 {
				paragraph, inside = -1, false
				if !yield(h) {
					return
				}
				continue
			}
			if until = opens(line); until != nil {
				paragraph, inside = -1, false
				continue
			}
			switch {
			case strings.ContainsRune("*-_", rune(line[0])) && strings.Count(line, line[:1]) > 2 && strings.Trim(line, line[:1]+" \t") == "": // * * *
				paragraph, inside = -1, false
			case contains(line, paragraph >= 0):
				paragraph, inside = -1, true
			case paragraph < 0 && !inside:
				paragraph = begin
			}
		}
	}
}

// unindent is a line without the white space before it, and how many columns that takes.
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

// frontMatter tells whether what follows a first line --- is data up to another one.
func frontMatter(text string) bool {
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

// hashes is the level and the title of a line that begins with #; 0: it is no heading. #s at its
// end that a blank is before are none of the title.
func hashes(line string) (level int, title string) {
	rest := strings.TrimLeft(line, "#")
	level = len(line) - len(rest)
	if level < 1 || level > 6 || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
		return 0, ""
	}
	title = strings.TrimRight(rest, "#")
	if title != "" && !strings.HasSuffix(title, " ") && !strings.HasSuffix(title, "\t") {
		title = rest
	}
	return level, strings.Trim(title, " \t")
}

// underline is the level that a line of = or - makes a heading of the paragraph above it; 0: none.
func underline(line string) int {
	switch {
	case strings.Trim(line, "=") == "":
		return 1
	case strings.Trim(line, "-") == "":
		return 2
	}
	return 0
}

// opens tells what ends the code or HTML that a line begins; nil: it begins none.
func opens(line string) func(line string, indent int) bool {
	if fence := line[:len(line)-len(strings.TrimLeft(line, line[:1]))]; len(fence) > 2 && (fence[0] == '~' || fence[0] == '`' && !strings.Contains(line[len(fence):], "`")) {
		return func(line string, indent int) bool {
			return indent < 4 && len(line) >= len(fence) && strings.Trim(line, fence[:1]) == ""
		}
	}
	lower := strings.ToLower(line)
	for _, v := range verbatim {
		rest, is := strings.CutPrefix(lower, v.begin)
		if is && (v.end == "-->" || rest == "" || strings.ContainsAny(rest[:1], " \t>")) && !strings.Contains(rest, v.end) {
			return func(line string, _ int) bool { return strings.Contains(strings.ToLower(line), v.end) }
		}
	}
	return nil
}

// contains tells whether a line begins a quotation or an item of a list, within a paragraph one
// that ends it.
func contains(line string, within bool) bool {
	if line[0] == '>' {
		return true
	}
	marker := strings.TrimLeft(line, "0123456789")
	number := line[:len(line)-len(marker)]
	switch {
	case marker == "" || len(number) > 9:
		return false
	case number == "" && !strings.ContainsRune("-+*", rune(marker[0])), number != "" && !strings.ContainsRune(".)", rune(marker[0])):
		return false
	case len(marker) == 1:
		return !within
	}
	return (marker[1] == ' ' || marker[1] == '\t') && (!within || number == "" || number == "1")
}
