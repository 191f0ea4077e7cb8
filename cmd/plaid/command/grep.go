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

// writeGrep prints a line for each hit, or for each passage of one, as grep does: the path of the
// file, as it is found from the working folder, the line in it that has most of the question's
// words (1 of pages and notebooks, whose text is not as their lines are), and its text. A hit that is
// no passage of a file has its id for a path, and its text's first line.
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
				if kind, known := encode.KindOf(path); fields.Path == "" || !known || kind.Written {
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

// leafHits are hits, of documents of passages these.
func leafHits(hits []search.Hit) (leaves []search.Hit) {
	for _, h := range hits {
		if len(h.Passages) == 0 {
			leaves = append(leaves, h)
		}
		leaves = append(leaves, h.Passages...)
	}
	return leaves
}

// relativePath is the path of a file of a folder as it is found from the working folder; one that
// is not there, since the folder is elsewhere by now, is as it is in its folder.
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
	if link, err := filepath.EvalSymlinks(workingDir); err == nil { // the root has none
		workingDir = link
	}
	if relative, err := filepath.Rel(workingDir, absolute); err == nil && filepath.IsLocal(relative) {
		return relative
	}
	return absolute
}

// maxLineRunes is how many characters of a line are printed.
const maxLineRunes = 200

// bestLine is the line of a text with most of a question's words, the first of such, and its
// number from 0.
func bestLine(text, question string) (number int, line string) {
	words := human.WordsOf(question)
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
