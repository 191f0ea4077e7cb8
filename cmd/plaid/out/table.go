package out

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Table is lines of text with aligned columns, two blanks apart.
type Table struct {
	// Indent is the number of blanks before each line.
	Indent int
	// LeftColumns is the number of columns that are aligned to the left; the others hold numbers
	// and are aligned to the right.
	LeftColumns int
	lines       []tableLine
}

type tableLine struct {
	cells  []string
	remark string
}

// Line appends a line.
func (t *Table) Line(cells ...string) { t.lines = append(t.lines, tableLine{cells: cells}) }

// Remark puts a text after the cells of the last line. It is not aligned: it may be of any length,
// and other lines need none.
func (t *Table) Remark(text string) { t.lines[len(t.lines)-1].remark = text }

// Print writes the table to b. Empty cells are padded to the width of their column, at the end of a
// line, too.
func (t *Table) Print(b *bytes.Buffer) {
	var widths []int
	for _, l := range t.lines {
		for i, c := range l.cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, l := range t.lines {
		gap := t.Indent
		for i, c := range l.cells {
			b.WriteString(strings.Repeat(" ", gap))
			fill := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i < t.LeftColumns {
				b.WriteString(c + fill)
			} else {
				b.WriteString(fill + c)
			}
			gap = 2
		}
		if l.remark != "" {
			b.WriteString("  " + l.remark)
		}
		b.WriteByte('\n')
	}
}
