package formats

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/vectors"
)

// Texts reads the texts of a file or folder, as for [Open]. A row is a text, in the columns text and title,
// with its id in _id or id, or in the columns that fields names. A null is an empty text. Other columns are
// the payload, except those of vectors.
//
// A file is read once for each pass over the sequence. The memory has a block of rows. Errors are those of
// [Open], or wrap [encode.ErrNoTextField] or [encode.ErrNoField].
func Texts(ctx context.Context, path string, fields encode.Fields) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		paths, err := filesAt(path)
		for _, p := range paths {
			wantsMore := false
			if wantsMore, err = fileTexts(ctx, p, fields, yield); err != nil || !wantsMore {
				break
			}
		}
		if err != nil {
			yield(encode.Text{}, err)
		}
	}
}

// fileTexts yields the texts of a file. wantsMore is false if yield returned false.
func fileTexts(
	ctx context.Context, path string, fields encode.Fields, yield func(encode.Text, error) bool,
) (wantsMore bool, err error) {
	const noRow = -1
	var c textColumns
	s, err := openFile(ctx, path, func(s *source, _ context.Context) (err error) {
		c, err = chooseTextColumns(s.rows.schema(), fields)
		return err
	})
	if err != nil {
		return false, err
	}
	defer s.Close()
	row := 0
	next, stop := iter.Pull2(s.rows.records(ctx, 0, c.read))
	defer func() { _ = guarded(func() error { stop(); return nil }) }()
	for {
		// Read the texts of a record. They are yielded outside of guarded, since a panic of yield is not
		// an error of the file.
		var texts []encode.Text
		ended := false
		err := guarded(func() error {
			r, err, ok := next()
			if ended = !ok; err != nil || !ok {
				return err
			}
			in := c.inRecord(r.Schema())
			for i := range int(r.NumRows()) {
				t, err := in.textAt(r.RecordBatch, i)
				if err != nil {
					return err
				}
				texts = append(texts, t)
			}
			return nil
		})
		for _, t := range texts {
			if !yield(t, nil) {
				return false, nil
			}
			row++
		}
		if changed := s.unchanged(); changed != nil {
			return false, s.toFileError(changed, noRow)
		}
		if err != nil {
			return false, s.toFileError(err, row)
		}
		if ended {
			return true, nil
		}
	}
}

// textColumns are the indexes of the columns of a text.
type textColumns struct {
	id, title, text int       // −1 means none
	names           [3]string // of these columns
	read            []int     // all columns except vectors
	without         []int     // columns that are not in the payload
}

// chooseTextColumns selects the columns of ids, titles and texts.
func chooseTextColumns(schema *arrow.Schema, fields encode.Fields) (c textColumns, err error) {
	var names []string
	for i, f := range schema.Fields() {
		if slices.Contains(names, f.Name) {
			return c, fmt.Errorf("%w: two columns are named %q", vectors.ErrShape, f.Name)
		}
		names = append(names, f.Name)
		if !isVector(f.Type) {
			c.read = append(c.read, i)
		}
	}
	id, title, text, err := fields.Columns(names)
	if err != nil {
		return c, err
	}
	for i, column := range []int{id, title, text} {
		if column < 0 {
			continue
		}
		if c.names[i] = names[column]; i > 0 && !isText(schema.Field(column).Type) {
			return c, fmt.Errorf("%w: column %s is of %s, not text",
				encode.ErrNoTextField, c.names[i], schema.Field(column).Type)
		}
	}
	return c, nil
}

// inRecord returns the columns of a record, which may have only selected columns of the file.
func (c textColumns) inRecord(schema *arrow.Schema) textColumns {
	index := func(name string) int {
		return slices.IndexFunc(schema.Fields(), func(f arrow.Field) bool { return name != "" && f.Name == name })
	}
	c.id, c.title, c.text = index(c.names[0]), index(c.names[1]), index(c.names[2])
	c.without = []int{c.id, c.title, c.text}
	for i, f := range schema.Fields() {
		if isVector(f.Type) {
			c.without = append(c.without, i)
		}
	}
	return c
}

// textAt returns the text of row i, which does not share memory with the record.
func (c textColumns) textAt(r arrow.RecordBatch, i int) (t encode.Text, err error) {
	if c.id >= 0 && !r.Column(c.id).IsNull(i) {
		if t.ID, err = rowID(r.Column(c.id), i); err != nil {
			return t, err
		}
	}
	if t.Text, err = cellText(r.Column(c.text), i); err == nil && c.title >= 0 {
		t.Title, err = cellText(r.Column(c.title), i)
	}
	if err != nil {
		return t, err
	}
	t.ID = strings.Clone(t.ID)
	t.Payload, err = appendPayload(nil, r, i, c.without...)
	return t, err
}

// cellText returns a copy of row i of a column of texts, "" for a null.
func cellText(a arrow.Array, i int) (string, error) {
	a = storageArray(a)
	if a.IsNull(i) {
		return "", nil
	}
	switch v := a.(type) {
	case array.StringLike:
		return strings.Clone(v.Value(i)), nil
	case *array.Dictionary:
		return cellText(v.Dictionary(), v.GetValueIndex(i))
	}
	return "", fmt.Errorf("%w: a column of %s, not text", vectors.ErrFormat, a.DataType())
}

// isText reports whether a type is text, or a dictionary of texts.
func isText(t arrow.DataType) bool {
	t = storageType(t)
	if d, ok := t.(*arrow.DictionaryType); ok {
		t = storageType(d.ValueType)
	}
	switch t.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return true
	}
	return false
}

// isVector reports whether a type is a list of floats, or of lists of floats, at any depth.
func isVector(t arrow.DataType) bool {
	list, ok := storageType(t).(arrow.ListLikeType)
	if !ok {
		return false
	}
	switch storageType(list.Elem()).ID() {
	case arrow.FLOAT16, arrow.FLOAT32, arrow.FLOAT64:
		return true
	}
	return isVector(list.Elem())
}
