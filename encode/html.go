package encode

import (
	"errors"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

var (
	// hiddenElements have text that readers of a page do not see.
	hiddenElements = []atom.Atom{
		atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Iframe, atom.Object,
	}
	// blockElements begin and end a line.
	blockElements = []atom.Atom{
		atom.Address, atom.Article, atom.Aside, atom.Blockquote, atom.Br, atom.Dd, atom.Div, atom.Dl,
		atom.Dt, atom.Fieldset, atom.Figcaption, atom.Figure, atom.Footer, atom.Form,
		atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Header, atom.Hr, atom.Li, atom.Main,
		atom.Nav, atom.Ol, atom.P, atom.Pre, atom.Section, atom.Table, atom.Td, atom.Th, atom.Tr, atom.Ul,
	}
)

// pageText returns the title of a web page and the text that its readers see: a line per block,
// with white space as single blanks. It reads the page tag by tag, so that deeply nested pages
// need no memory other than their text.
func pageText(content string) (title, text string, err error) {
	z := html.NewTokenizer(strings.NewReader(content))
	z.SetMaxBuf(maxTextLine)
	var body, titleText strings.Builder
	inTitle := false
	hidden := atom.Atom(0) // the hidden element that the reader is in
	depth := 0             // of hidden within itself. 0 means that the text is visible
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			if err := z.Err(); !errors.Is(err, io.EOF) {
				return "", "", err
			}
			return collapseSpace(titleText.String()), collapseSpace(body.String()), nil
		}
		if kind == html.TextToken {
			switch {
			case inTitle:
				titleText.Write(z.Text())
			case depth == 0:
				text := html.UnescapeString(string(z.Raw()))
				body.WriteString(strings.NewReplacer("\n", " ", "\r", " ").Replace(text))
			}
			continue
		}
		name, _ := z.TagName()
		tag := atom.Lookup(name)
		switch {
		case kind == html.StartTagToken && depth == 0 && slices.Contains(hiddenElements, tag):
			hidden, depth = tag, 1
		case kind == html.StartTagToken && depth > 0 && tag == hidden:
			depth++
		case kind == html.EndTagToken && depth > 0 && tag == hidden:
			depth--
		}
		if tag == atom.Title && depth == 0 {
			inTitle = kind == html.StartTagToken
		} else if slices.Contains(blockElements, tag) {
			body.WriteByte('\n')
		}
	}
}

// collapseSpace returns the lines of a text that have words, with one blank between words.
func collapseSpace(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "\n")
}
