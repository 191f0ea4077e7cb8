package encode

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// columns holds the names of a table's columns, and the indexes of those with the id, title and
// text; −1 means a missing column.
type columns struct {
	names           []string
	id, title, text int
}

// columnsFromHead returns the columns that the first line of a table names.
func (f *Fields) columnsFromHead(head []string) (c columns, err error) {
	for _, h := range head {
		c.names = append(c.names, strings.TrimSpace(h))
	}
	if c.id, c.title, c.text, err = f.Columns(c.names); err != nil {
		return c, fmt.Errorf("%w; the first line names the columns: if it is a text already, "+
			"put one in front of it, such as id, text", err)
	}
	return c, nil
}

// textFromRow returns the text of a row. Columns other than id, title and text become the payload.
// lineNumber returns the number of the line that a column's cell is in.
func (c *columns) textFromRow(cells []string, lineNumber func(column int) int) (t Text, err error) {
	metadata := map[string]any{}
	t.From.Line = lineNumber(0)
	for i, v := range cells {
		if err := checkUTF8(v); err != nil {
			err = fmt.Errorf("column %s %w", clipName(c.names[i]), err)
			return t, &TextError{Line: lineNumber(i), Row: -1, Err: err}
		}
		if i != c.id && i != c.title && i != c.text {
			metadata[c.names[i]] = cellValue(v)
		}
	}
	cell := func(column int) string {
		if column < 0 {
			return ""
		}
		return cells[column]
	}
	t.ID, t.Title, t.Text = cell(c.id), cell(c.title), cell(c.text)
	if len(metadata) > 0 {
		t.Payload, err = jsontext.MarshalUnescaped(metadata)
	}
	return t, err
}

// cellValue returns the value of a cell in a payload: null for an empty cell, a number if the cell
// is written as JSON and JavaScript write that number, and otherwise text. So 2019 and -0.5 are
// numbers; 007, 1.50 and 1e3 stay text, since a number would lose how they are written. The web page
// of the service has the same rule.
func cellValue(cell string) any {
	if cell == "" {
		return nil
	}
	if strings.Trim(cell, "-.0123456789") != "" || cell == "-0" {
		return cell
	}
	v, err := strconv.ParseFloat(cell, 64)
	// JavaScript writes numbers beyond these limits with an exponent.
	if magnitude := math.Abs(v); err != nil || magnitude >= 1e21 || v != 0 && magnitude < 1e-6 {
		return cell
	}
	if strconv.FormatFloat(v, 'f', -1, 64) != cell {
		return cell
	}
	return json.Number(cell)
}

// parseCSV reads a table as RFC 4180 describes it: a cell in quotation marks may have commas and line
// ends. The first line names the columns ([Fields.Columns]).
func (r *Reader) parseCSV(ctx context.Context, in io.Reader, yield func(Text, error) bool) error {
	unmarked, err := files.SkipByteOrderMark(in)
	if err != nil {
		return err
	}
	limited := &rowLimitReader{r: unmarked}
	rows := csv.NewReader(limited)
	rows.ReuseRecord = true
	var c columns
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return err
		}
		limited.remaining = maxTextLine
		cells, err := rows.Read()
		if errors.Is(err, io.EOF) {
			if first {
				return errNoHead
			}
			return nil
		}
		if err != nil {
			return err
		}
		if first {
			if c, err = r.Fields.columnsFromHead(cells); err != nil {
				line, _ := rows.FieldPos(0)
				return &TextError{Line: line, Row: -1, Err: err}
			}
			continue
		}
		t, err := c.textFromRow(cells, func(column int) int { line, _ := rows.FieldPos(column); return line })
		if err != nil {
			return err
		}
		if !yield(t, nil) {
			return nil
		}
	}
}

var errNoHead = errors.New("is empty: want a line that names the columns")

// rowLimitReader fails after remaining bytes, which the caller sets for each row: a quotation mark that is
// never closed would take all memory.
type rowLimitReader struct {
	r         io.Reader
	remaining int
}

// Read returns an error once remaining bytes of a row were read.
func (b *rowLimitReader) Read(p []byte) (int, error) {
	if b.remaining <= 0 {
		return 0, fmt.Errorf("%w: a row has more than %d bytes: is a quotation mark not closed?",
			files.ErrLongLine, maxTextLine)
	}
	n, err := b.r.Read(p)
	b.remaining -= n
	return n, err
}

// parseTSV reads tab-separated text without quoting ([files.SplitCells]): each line that is not blank is a
// row. The first line names the columns ([Fields.Columns]), unless it is a document already
// ([Fields.headless]).
func (r *Reader) parseTSV(ctx context.Context, in io.Reader, yield func(Text, error) bool) error {
	var c columns
	var cells [][]byte
	var row []string
	first, headless := 0, false
	err := visitLines(ctx, in, func(line []byte, n int) (bool, error) {
		if len(line) == 0 && len(c.names) != 1 { // in a table of one column it is an empty text
			return true, nil
		}
		cells = files.SplitCells(cells[:0], line)
		row = row[:0]
		for _, cell := range cells {
			row = append(row, string(cell))
		}
		if c.names == nil {
			first = n
			if headless = r.Fields.headless(row); !headless {
				var err error
				c, err = r.Fields.columnsFromHead(row)
				return true, err
			}
			c = columns{names: []string{"id", "text"}, id: 0, title: -1, text: 1}
		}
		if len(row) != len(c.names) {
			return false, fmt.Errorf("wrong number of fields: %d, line %d has %d; tabs separate fields, "+
				"and quotation marks do not join them", len(row), first, len(c.names))
		}
		t, err := c.textFromRow(row, func(int) int { return n })
		return err == nil && yield(t, nil), err
	})
	if err == nil && c.names == nil {
		return errNoHead
	}
	return err
}

// headless reports whether the first line of tab-separated text is a document instead of the names of
// columns, as in collection.tsv and queries.tsv of MS MARCO. It requires that no fields are named, and
// two cells, an id and a text, that cannot be names: either the id is a number and the text neither a
// number nor a usual name, or the id has a digit and the text three words.
func (f *Fields) headless(cells []string) bool {
	if *f != (Fields{}) || len(cells) != 2 {
		return false
	}
	id, text := cells[0], cells[1]
	notInID := func(r rune) bool { return r <= ' ' || r == 0xfeff }
	if id == "" || len(id) > maxHeadlessID || strings.ContainsFunc(id, notInID) {
		return false
	}
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if digits(id) {
		known := []string{"_id", "id", "title", "text"}
		return !digits(strings.TrimSpace(text)) && !slices.Contains(known, strings.ToLower(strings.TrimSpace(text)))
	}
	return strings.ContainsAny(id, "0123456789") && len(strings.Fields(text)) > 2
}

// maxHeadlessID is the longest id, in bytes, of a first line that counts as a document.
const maxHeadlessID = 256

// Columns returns the indexes of id, title and text among the columns of a table; −1 means that there
// are no ids or titles. The columns are those that f names, which must exist, or else _id or id, title,
// and text. The column of the id may also be that of the text or the title.
//
// Errors are [ErrNoTextField] and [ErrNoField], and list the columns.
func (f *Fields) Columns(names []string) (id, title, text int, err error) {
	for i, name := range names {
		if slices.Index(names, name) != i {
			return -1, -1, -1, fmt.Errorf("names column %q twice", clipName(name))
		}
	}
	id = slices.Index(names, "_id")
	if id < 0 {
		id = slices.Index(names, "id")
	}
	if f.ID != "" {
		id = slices.Index(names, f.ID)
	}
	title, text = slices.Index(names, cmp.Or(f.Title, "title")), slices.Index(names, cmp.Or(f.Text, "text"))
	err = f.missingError(presence{id >= 0, title >= 0, text >= 0}, "there is no column", "only", names)
	if text < 0 && err == nil {
		err = f.lacksError(ErrNoTextField, "there is no column", cmp.Or(f.Text, "text"), "only", names)
	}
	if title == text {
		title = -1
	}
	return id, title, text, err
}

// missingError returns the error of a file that lacks a field which f names, or both title and text; nil
// means that it lacks none. The message is "NO name, THERE names", as in "no object has body, this
// one has title, text".
func (f *Fields) missingError(has presence, no, there string, names []string) error {
	switch {
	case !has.text && (f.Text != "" || !has.title):
		return f.lacksError(ErrNoTextField, no, cmp.Or(f.Text, "text"), there, names)
	case !has.id && f.ID != "":
		return f.lacksError(ErrNoField, no, f.ID, there, names)
	case !has.title && f.Title != "":
		return f.lacksError(ErrNoField, no, f.Title, there, names)
	}
	return nil
}

// lacksError returns the error of a field name that is missing among names, see missingError.
func (f *Fields) lacksError(kind error, no, name, there string, names []string) error {
	shown := make([]string, 0, min(len(names), maxNames)+1)
	for _, n := range names[:min(len(names), maxNames)] {
		shown = append(shown, clipName(n))
	}
	if hidden := len(names) - maxNames; hidden > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", hidden))
	}
	return fmt.Errorf("%w: %s %s, %s %s", kind, no, clipName(name), there, strings.Join(shown, ", "))
}

// maxNames is how many field names an error lists.
const maxNames = 20

// clipName shortens a name for an error: in a file without a head, it may be a long text.
func clipName(name string) string {
	const maxBytes = 60
	if len(name) <= maxBytes {
		return name
	}
	return string(bytes.ToValidUTF8([]byte(name[:maxBytes]), nil)) + "…"
}
