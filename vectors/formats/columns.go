package formats

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
)

// Names of columns, in order of precedence.
var (
	vectorNames = []string{"vectors", "embeddings", "docs", "data"}
	idNames     = []string{"_id", "id"}
)

// columns are the indexes of the columns of a document.
type columns struct {
	vectors, id int // −1 means none
	names       []string
}

// chooseColumns selects the columns of vectors and ids by name and type, and checks the names of others.
func chooseColumns(schema *arrow.Schema) (columns, error) {
	// The vectors.
	c := columns{vectors: -1, id: -1}
	var matrices []string
	for _, f := range schema.Fields() {
		c.names = append(c.names, f.Name)
		if isMatrix(f.Type) {
			matrices = append(matrices, f.Name)
		}
	}
	for _, name := range vectorNames {
		if slices.Contains(matrices, name) {
			c.vectors = slices.Index(c.names, name)
			break
		}
	}
	switch {
	case c.vectors >= 0:
	case len(matrices) == 1:
		c.vectors = slices.Index(c.names, matrices[0])
	case len(matrices) == 0:
		return c, fmt.Errorf("%w: no column is a list of lists of floats; there is %s",
			vectors.ErrShape, describe(schema))
	default:
		return c, fmt.Errorf("%w: the columns %s are lists of lists of floats: name the one with the vectors %s",
			vectors.ErrShape, strings.Join(matrices, ", "), vectorNames[0])
	}
	// The ids, and the names of all others, which become keys of payloads.
	for _, name := range idNames {
		if i := slices.Index(c.names, name); i >= 0 {
			c.id = i
			break
		}
	}
	for i, name := range c.names {
		if slices.Index(c.names, name) != i {
			return c, fmt.Errorf("%w: two columns are named %q", vectors.ErrShape, name)
		}
		if i == c.id || i == c.vectors {
			continue
		}
		if err := vectors.CheckKey(name); err != nil { // CheckDocument would find it only row by row
			return c, err
		}
	}
	return c, nil
}

// describe lists the first columns of a schema, for errors.
func describe(schema *arrow.Schema) string {
	var columns []string
	for _, f := range schema.Fields() {
		columns = append(columns, fmt.Sprintf("%s (%s)", f.Name, f.Type))
	}
	if len(columns) == 0 {
		return "none"
	}
	return strings.Join(columns[:min(len(columns), 10)], ", ")
}

// columnsToScan returns the columns that a scan for lengths and ids reads.
func (c *columns) columnsToScan() []int {
	if c.id < 0 {
		return []int{c.vectors}
	}
	return []int{c.vectors, c.id}
}

// inRecord returns the columns of a record, which may have only selected columns of the file.
func (c *columns) inRecord(schema *arrow.Schema) columns {
	if schema.NumFields() == len(c.names) {
		return *c
	}
	w := columns{vectors: -1, id: -1}
	for i, f := range schema.Fields() {
		w.names = append(w.names, f.Name)
		switch {
		case f.Name == c.names[c.vectors]:
			w.vectors = i
		case c.id >= 0 && f.Name == c.names[c.id]:
			w.id = i
		}
	}
	return w
}

// storageType returns the type as which an extension type is stored, or t itself.
func storageType(t arrow.DataType) arrow.DataType {
	if e, ok := t.(arrow.ExtensionType); ok {
		return storageType(e.StorageType())
	}
	return t
}

// isMatrix reports whether a type is a list of lists of floats.
func isMatrix(t arrow.DataType) bool {
	outer, ok := storageType(t).(arrow.ListLikeType)
	if !ok {
		return false
	}
	inner, ok := storageType(outer.Elem()).(arrow.ListLikeType)
	if !ok {
		return false
	}
	switch storageType(inner.Elem()).ID() {
	case arrow.FLOAT16, arrow.FLOAT32, arrow.FLOAT64:
		return true
	}
	return false
}

// storageArray returns the array in which an extension array is stored, or a itself.
func storageArray(a arrow.Array) arrow.Array {
	if e, ok := a.(array.ExtensionArray); ok {
		return storageArray(e.Storage())
	}
	return a
}

// matrixAt returns the tokens of row i: the lists from begin on and before end.
func matrixAt(a arrow.Array, i int) (tokens array.ListLike, begin, end int64, err error) {
	outer, ok := storageArray(a).(array.ListLike)
	if !ok {
		return nil, 0, 0, fmt.Errorf("%w: a column of %s", vectors.ErrFormat, a.DataType())
	}
	if begin, end = outer.ValueOffsets(i); outer.IsNull(i) {
		end = begin // a document without tokens
	}
	tokens, ok = storageArray(outer.ListValues()).(array.ListLike)
	if !ok || begin < 0 || end < begin || end > int64(tokens.Len()) {
		return nil, 0, 0, fmt.Errorf("%w: the lists are damaged", vectors.ErrFormat)
	}
	return tokens, begin, end, nil
}

// shapeOf returns the dimension, 0 without tokens, and the number of tokens of row i.
func shapeOf(a arrow.Array, i int) (dim int, tokens int64, err error) {
	lists, begin, end, err := matrixAt(a, i)
	if err != nil || begin == end {
		return 0, 0, err
	}
	from, to := lists.ValueOffsets(int(begin))
	dim = int(min(max(to-from, 0), math.MaxInt32))
	for t := begin; t < end; t++ {
		if err := checkToken(lists, t-begin, t, int64(dim)); err != nil {
			return 0, 0, err
		}
	}
	if dim == 0 {
		return 0, 0, fmt.Errorf("%w: token vectors without components", vectors.ErrShape)
	}
	return dim, end - begin, nil
}

// checkToken checks that list i, a token of a document, has dim components.
func checkToken(lists array.ListLike, token, i, dim int64) error {
	fault := func(format string, args ...any) error {
		fe := vectors.NewFileError("", fmt.Errorf("%w: %s", vectors.ErrShape, fmt.Sprintf(format, args...)))
		fe.Token = int(token)
		return fe
	}
	if lists.IsNull(int(i)) {
		return fault("there is no vector (null)")
	}
	if from, to := lists.ValueOffsets(int(i)); to-from != dim {
		return fault("dimension %d, tokens before it have %d", to-from, dim)
	}
	return nil
}

// appendVectors appends the vectors of row i, which must have the dimension dim and finite components.
func appendVectors(dst []float32, a arrow.Array, i, dim int) ([]float32, error) {
	lists, begin, end, err := matrixAt(a, i)
	if err != nil || begin == end {
		return dst, err
	}
	values := storageArray(lists.ListValues())
	for t := begin; t < end; t++ {
		if err := checkToken(lists, t-begin, t, int64(dim)); err != nil {
			return dst, err
		}
		// Append the components.
		from, to := lists.ValueOffsets(int(t))
		if from < 0 || to > int64(values.Len()) {
			return dst, fmt.Errorf("%w: the lists are damaged", vectors.ErrFormat)
		}
		first := len(dst)
		switch v := values.(type) {
		case *array.Float32:
			dst = append(dst, v.Float32Values()[from:to]...)
		case *array.Float64:
			for _, x := range v.Float64Values()[from:to] {
				dst = append(dst, float32(x))
			}
		case *array.Float16:
			for _, x := range v.Values()[from:to] {
				dst = append(dst, x.Float32())
			}
		default:
			return dst, fmt.Errorf("%w: a column of %s", vectors.ErrFormat, a.DataType())
		}
		// Check them.
		for j, x := range dst[first:] {
			isNull := values.NullN() > 0 && values.IsNull(int(from)+j)
			if bits := math.Float32bits(x); isNull || bits&0x7f800000 == 0x7f800000 { // NaN or infinite
				fe := vectors.NewFileError("", fmt.Errorf("%w: %v", vectors.ErrValue, x))
				if isNull {
					fe.Err = fmt.Errorf("%w: null", vectors.ErrValue)
				}
				fe.Token, fe.Dim = int(t-begin), j
				return dst, fe
			}
		}
	}
	return dst, nil
}

// rowID returns the id of row i: text, or the digits of an integer.
func rowID(a arrow.Array, i int) (string, error) {
	a = storageArray(a)
	if a.IsNull(i) {
		return "", fmt.Errorf("%w: there is none (null)", vectors.ErrID)
	}
	switch v := a.(type) {
	case array.StringLike:
		return v.Value(i), nil
	case *array.Dictionary:
		return rowID(v.Dictionary(), v.GetValueIndex(i))
	case *array.Int64, *array.Uint64, *array.Int32, *array.Uint32,
		*array.Int16, *array.Uint16, *array.Int8, *array.Uint8:
		return a.ValueStr(i), nil
	}
	return "", fmt.Errorf("%w: a column of %s; want text or whole numbers", vectors.ErrID, a.DataType())
}

// appendPayload appends row i as a JSON object, except for some columns. It appends nothing if these are
// all columns.
func appendPayload(b []byte, r arrow.RecordBatch, i int, without ...int) ([]byte, error) {
	for j := range int(r.NumCols()) {
		if slices.Contains(without, j) {
			continue
		}
		name := r.ColumnName(j)
		value, err := appendValue(nil, r.Column(j), i)
		if err != nil {
			return b, fmt.Errorf("%w: column %s: %w", vectors.ErrPayload, name, err)
		}
		key, err := jsontext.MarshalUnescaped(name)
		if err != nil {
			return b, err
		}
		separator := byte(',')
		if len(b) == 0 {
			separator = '{'
		}
		b = append(append(append(append(b, separator), key...), ':'), value...)
	}
	if len(b) > 0 {
		b = append(b, '}')
	}
	return b, nil
}
