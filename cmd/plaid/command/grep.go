package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/search"
)

// writeGrep prints a line for each hit, or for each passage of one, as grep does: path, line number
// and text. The path is relative to the working folder. The line is the one with most of the
// question's words; it is line 1 for pages and notebooks, whose files do not contain their text
// line by line. A hit that does not come from a file has its id for a path, and the first line of
// its text.
func (t *stdio) writeGrep(queries *querySet, results []search.Result) error {
	var b bytes.Buffer
	for i, r := range results {
		question := ""
		if queries.questions != nil {
			question = queries.questions[i]
		}
		for _, h := range leafHits(r.Hits) {
			var fields struct {
				Path, Root, Text, Title string
				Line                    int
			}
			path, number, text := h.ID, 1, ""
			if json.Unmarshal(h.Payload, &fields) == nil {
				lineIndex := 0
				if fields.Path != "" && fields.Line > 0 {
					path, number = relativePath(fields.Root, fields.Path), fields.Line
				}
				lineIndex, text = bestLine(fields.Text, question)
				if kind, known := encode.KindByName(path); fields.Path == "" || !known || kind.Verbatim {
					number += lineIndex
				}
				if text == "" {
					text = fields.Title
				}
			}
			fmt.Fprintf(&b, "%s:%d: %s\n", out.Escaped(out.TabField(path)), number, out.Printable(text, maxLineRunes))
		}
	}
	return t.writeOutput(b.Bytes())
}

// leafHits returns the passages of hits that have some, and the other hits themselves.
func leafHits(hits []search.Hit) (leaves []search.Hit) {
	for _, h := range hits {
		if len(h.Passages) == 0 {
			leaves = append(leaves, h)
		}
		leaves = append(leaves, h.Passages...)
	}
	return leaves
}

// relativePath returns the path of a file in the folder root, relative to the working folder. It
// returns path itself if the folder has been moved, so that the file is not there.
func relativePath(root, path string) string {
	if root == "" {
		return path
	}
	absolute := filepath.Join(root, filepath.FromSlash(path))
	if _, err := os.Lstat(absolute); err != nil {
		return path
	}
	workingDir, err := os.Getwd()
	if err != nil {
		return absolute
	}
	if link, err := filepath.EvalSymlinks(workingDir); err == nil { // the root has no links either
		workingDir = link
	}
	if relative, err := filepath.Rel(workingDir, absolute); err == nil && filepath.IsLocal(relative) {
		return relative
	}
	return absolute
}

// maxLineRunes is the number of characters of a line that are printed.
const maxLineRunes = 200

// bestLine returns the first line with most of a question's words, and its number, counted from 0.
func bestLine(text, question string) (number int, line string) {
	words := human.QuestionWords(question)
	best := -1
	i := 0
	for l := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(l); trimmed != "" {
			if n := words.Count(l); n > best {
				best, number, line = n, i, trimmed
			}
		}
		i++
	}
	return number, line
}
