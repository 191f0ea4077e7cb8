package encode

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// notebook is a Jupyter file of version 4 or, with worksheets, of version 3. The output of cells is
// not read.
type notebook struct {
	Metadata struct {
		Title    jsonString
		Kernel   struct{ Language jsonString } `json:"kernelspec"`
		Language struct{ Name jsonString }     `json:"language_info"`
	}
	Cells      []notebookCell
	Worksheets []struct{ Cells []notebookCell }
}

type notebookCell struct {
	Type   string `json:"cell_type"`
	Source jsonLines
	Input  jsonLines // of code, in version 3
	Level  int       // of a heading, in version 3
}

// jsonString is a string, or "" for any other value.
type jsonString string

func (s *jsonString) UnmarshalJSON(b []byte) error {
	var v string
	if json.Unmarshal(b, &v) == nil {
		*s = jsonString(v)
	}
	return nil
}

// jsonLines is a string, or a list of strings that are concatenated.
type jsonLines string

func (l *jsonLines) UnmarshalJSON(b []byte) error {
	var lines []string
	if json.Unmarshal(b, &lines) == nil {
		*l = jsonLines(strings.Join(lines, ""))
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return errors.New("the source of a cell is not text")
	}
	*l = jsonLines(text)
	return nil
}

// notebookText returns the title of a notebook and its cells as Markdown, with code in fences. The title
// comes from the metadata, or else from the first heading.
func notebookText(content string) (title, text string, err error) {
	var n notebook
	if err := jsontext.Check([]byte(content), jsontext.Options{Vectors: true}); err != nil {
		return "", "", fmt.Errorf("is not a notebook: %w", err)
	}
	if err := json.Unmarshal([]byte(content), &n); err != nil {
		return "", "", fmt.Errorf("is not a notebook: %w", err)
	}
	cells := n.Cells
	for _, sheet := range n.Worksheets {
		cells = append(cells, sheet.Cells...)
	}
	if cells == nil {
		return "", "", errors.New("is not a notebook: it has no cells")
	}
	language := string(cmp.Or(n.Metadata.Language.Name, n.Metadata.Kernel.Language))
	language = strings.ReplaceAll(language, "`", "")
	language = strings.Join(strings.Fields(language), "-") // the fence takes one word
	var b strings.Builder
	for _, c := range cells {
		source := strings.Trim(strings.ReplaceAll(string(c.Source+c.Input), "\r\n", "\n"), "\n")
		switch {
		case strings.TrimSpace(source) == "":
			continue
		case c.Type == "code":
			fence := "```"
			for strings.Contains(source, fence) {
				fence += "`"
			}
			source = fence + language + "\n" + source + "\n" + fence
		case c.Type == "heading":
			source = strings.Repeat("#", min(max(c.Level, 1), 6)) + " " + strings.Join(strings.Fields(source), " ")
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(source)
	}
	text = b.String()
	title = string(n.Metadata.Title)
	if title == "" {
		for h := range headings(text) {
			title = h.title
			break
		}
	}
	return title, text, nil
}
