package formats_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/formats"
)

var ctx = context.Background()

var register = sync.OnceFunc(formats.Register)

// read opens files as every command does, and reads all.
func read(t require.TestingT, files vectors.Files) (dim int, docs []vectors.Document) {
	register()
	s, err := vectors.Open(ctx, files)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for i := 0; ; i++ {
		if i == s.Len() {
			break
		}
		require.Zero(t, len(docs)-i)
		for d, err := range s.Docs(ctx, i, i+1) {
			require.NoError(t, err)
			require.Equal(t, s.ID(i), d.ID)
			require.Equal(t, s.Rows(i)*s.Dim(), len(d.Tokens))
			docs = append(docs, vectors.Document{ID: d.ID, Tokens: slices.Clone(d.Tokens), Payload: bytes.Clone(d.Payload)})
		}
	}
	return s.Dim(), docs
}

// Files that pyarrow and datasets wrote.
func TestFilesOfOthers(t *testing.T) {
	tokens := [][]float32{{1, 0, 2, -1, 3, -2}, nil, {.5, .25}}
	same := []string{"a", `{"_id":"a","title":"A","year":1}`, "b", `{"_id":"b","title":null,"year":2}`, "c", `{"_id":"c","title":"C é","year":3}`}
	for name, want := range map[string][]string{
		"f32.parquet": same, "fixed64.parquet": same, "large.parquet": same, "lz4.feather": same, "hub": same, "hub/data": same,
		"saved":      {"7", `{"id":7,"title":"A"}`, "8", `{"id":8,"title":null}`, "9", `{"id":9,"title":"C é"}`},
		"half.arrow": {"0", ``, "1", ``, "2", ``},
	} {
		t.Run(name, func(t *testing.T) {
			dim, docs := read(t, vectors.Files{Vectors: filepath.Join("testdata", name)})
			require.Equal(t, 2, dim)
			require.Len(t, docs, 3)
			for i, d := range docs {
				require.Equal(t, want[2*i], d.ID)
				require.Equal(t, want[2*i+1], string(d.Payload))
				require.Equal(t, tokens[i], append([]float32(nil), d.Tokens...))
			}
		})
	}
}

// Ids and payloads of other files take the place of those in the table.
func TestOtherIDsAndPayloads(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	ids, payload := write("ids.txt", "x\ny\nz\n"), write("p.jsonl", "{\"_id\": \"y\", \"n\": 1}\n")
	_, docs := read(t, vectors.Files{Vectors: "testdata/f32.parquet", IDs: ids, Payload: payload})
	require.Equal(t, "y", docs[1].ID)
	require.Nil(t, docs[0].Payload)
	require.JSONEq(t, `{"_id": "y", "n": 1}`, string(docs[1].Payload))
	_, docs = read(t, vectors.Files{Vectors: "testdata/f32.parquet", Payload: write("q.jsonl", "{\"_id\": \"c\", \"n\": 2}\n")})
	require.JSONEq(t, `{"_id": "c", "n": 2}`, string(docs[2].Payload))
	_, docs = read(t, vectors.Files{Vectors: "testdata/half.arrow", Payload: write("r.jsonl", "{}\n{\"n\": 2}\n{}\n")})
	require.JSONEq(t, `{"n": 2}`, string(docs[1].Payload))
	register()
	_, err := vectors.Open(ctx, vectors.Files{Vectors: "testdata/f32.parquet", Lengths: ids})
	require.ErrorIs(t, err, vectors.ErrShape)
	_, err = vectors.Open(ctx, vectors.Files{Vectors: "testdata/f32.parquet", IDs: write("few.txt", "x\n")})
	require.ErrorIs(t, err, vectors.ErrID)
}

// column builds one column of a table.
type column struct {
	name string
	kind arrow.DataType
	fill func(array.Builder)
}

// write writes a table in one of the formats, chunk rows at a time.
func write(t require.TestingT, path, format string, chunk int, columns ...column) {
	var fields []arrow.Field
	var data []arrow.Array
	for _, c := range columns {
		b := array.NewBuilder(memory.NewGoAllocator(), c.kind)
		c.fill(b)
		fields, data = append(fields, arrow.Field{Name: c.name, Type: c.kind, Nullable: true}), append(data, b.NewArray())
	}
	schema := arrow.NewSchema(fields, nil)
	rows := int64(data[0].Len())
	f, err := os.Create(path)
	require.NoError(t, err)
	if format == "parquet" {
		table := array.NewTableFromRecords(schema, []arrow.RecordBatch{array.NewRecordBatch(schema, data, rows)})
		require.NoError(t, pqarrow.WriteTable(table, f, int64(chunk), parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy)), pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema())))
		return // it has closed the file
	}
	all := array.NewRecordBatch(schema, data, rows)
	var put func(arrow.RecordBatch) error
	var end func() error
	if format == "stream" {
		w := ipc.NewWriter(f, ipc.WithSchema(schema))
		put, end = w.Write, w.Close
	} else {
		w, err := ipc.NewFileWriter(f, ipc.WithSchema(schema))
		require.NoError(t, err)
		put, end = w.Write, w.Close
	}
	for from := int64(0); from < rows; from += int64(chunk) {
		require.NoError(t, put(all.NewSlice(from, min(from+int64(chunk), rows))))
	}
	require.NoError(t, end())
	require.NoError(t, f.Close())
}

// matrices is a column of documents.
func matrices(name string, elem arrow.DataType, dim int, fixed bool, docs [][]float32) column {
	inner := arrow.DataType(arrow.ListOf(elem))
	if fixed {
		inner = arrow.FixedSizeListOf(int32(dim), elem)
	}
	return column{name, arrow.ListOf(inner), func(b array.Builder) {
		outer := b.(*array.ListBuilder)
		for _, d := range docs {
			outer.Append(true)
			for at := 0; at < len(d); at += dim {
				var values array.Builder
				switch tokens := outer.ValueBuilder().(type) {
				case *array.ListBuilder:
					tokens.Append(true)
					values = tokens.ValueBuilder()
				case *array.FixedSizeListBuilder:
					tokens.Append(true)
					values = tokens.ValueBuilder()
				}
				for _, x := range d[at : at+dim] {
					switch v := values.(type) {
					case *array.Float16Builder:
						v.Append(float16.New(x))
					case *array.Float32Builder:
						v.Append(x)
					case *array.Float64Builder:
						v.Append(float64(x))
					}
				}
			}
		}
	}}
}

func texts(name string, values []string) column {
	return column{name, arrow.BinaryTypes.String, func(b array.Builder) { b.(*array.StringBuilder).AppendValues(values, nil) }}
}

// Whatever was written comes back, in any order of reading.
func TestRandomTables(t *testing.T) {
	register()
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dim := rapid.IntRange(1, 9).Draw(t, "dim")
		count := rapid.IntRange(0, 12).Draw(t, "docs")
		docs, ids, notes := make([][]float32, count), make([]string, count), make([]string, count)
		for i := range docs {
			for range rapid.IntRange(0, 4).Draw(t, "tokens") * dim {
				docs[i] = append(docs[i], float32(rapid.IntRange(-64, 64).Draw(t, "value"))/16)
			}
			ids[i], notes[i] = fmt.Sprint("d", i), rapid.StringN(0, 5, 20).Draw(t, "note")
		}
		elem := rapid.SampledFrom([]arrow.DataType{arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64}).Draw(t, "type")
		format := rapid.SampledFrom([]string{"parquet", "file", "stream"}).Draw(t, "format")
		path := filepath.Join(dir, fmt.Sprint(n, map[string]string{"parquet": ".parquet"}[format]))
		if format != "parquet" {
			path += ".arrow"
		}
		write(t, path, format, rapid.IntRange(1, 5).Draw(t, "chunk"), texts("note", notes), texts("id", ids), matrices("x", elem, dim, rapid.Bool().Draw(t, "fixed"), docs))
		s, err := vectors.Open(ctx, vectors.Files{Vectors: path})
		require.NoError(t, err)
		defer s.Close()
		require.Equal(t, count, s.Len())
		for range 4 {
			from := rapid.IntRange(0, count).Draw(t, "from")
			to := rapid.IntRange(from, count).Draw(t, "to")
			stop := rapid.IntRange(from, count).Draw(t, "stop")
			i := from
			for d, err := range s.Docs(ctx, from, to) {
				require.NoError(t, err)
				require.Equal(t, ids[i], d.ID)
				require.Equal(t, docs[i], append([]float32(nil), d.Tokens...))
				require.Equal(t, len(docs[i]), s.Rows(i)*dim)
				var payload struct{ Note, ID string }
				require.NoError(t, json.Unmarshal(d.Payload, &payload))
				require.Equal(t, ids[i], payload.ID)
				i++
				if i == stop {
					break
				}
			}
		}
	})
}

// What is wrong is named, with its place.
func TestFaults(t *testing.T) {
	register()
	f32 := arrow.PrimitiveTypes.Float32
	good := [][]float32{{1, 2}, {3, 4}}
	nan := float32(math.NaN())
	other := matrices("vectors", f32, 1, false, [][]float32{{1, 2}, {3}})
	other.fill = func(b array.Builder) {
		outer := b.(*array.ListBuilder)
		tokens := outer.ValueBuilder().(*array.ListBuilder)
		for _, n := range []int{2, 3} {
			outer.Append(true)
			tokens.Append(true)
			for range n {
				tokens.ValueBuilder().(*array.Float32Builder).Append(1)
			}
		}
	}
	score := func(at float64) column {
		return column{"score", arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).AppendValues([]float64{1, at}, nil) }}
	}
	nested := column{"tags", arrow.ListOf(arrow.StructOf(arrow.Field{Name: "s", Type: arrow.BinaryTypes.String})), func(b array.Builder) {
		list := b.(*array.ListBuilder)
		fields := list.ValueBuilder().(*array.StructBuilder)
		for _, s := range []string{"é", "\xff"} {
			list.Append(true)
			fields.Append(true)
			fields.FieldBuilder(0).(*array.StringBuilder).Append(s)
		}
	}}
	for name, c := range map[string]struct {
		is      error
		text    string
		columns []column
	}{
		"no vectors":    {vectors.ErrShape, "no column is a list of lists of floats; there is id (utf8)", []column{texts("id", []string{"a"})}},
		"two columns":   {vectors.ErrShape, "name the one", []column{matrices("x", f32, 2, false, good), matrices("y", f32, 2, false, good)}},
		"duplicate ids": {vectors.ErrID, `"a" is that of document 0`, []column{texts("id", []string{"a", "a"}), matrices("x", f32, 2, false, good)}},
		"bad id":        {vectors.ErrID, "document 1", []column{texts("id", []string{"a", "\x01"}), matrices("x", f32, 2, false, good)}},
		"bad decimal": {vectors.ErrPayload, `document 0 (id "0"): bad metadata: column d: 0.12345678901234567891 has more digits`, []column{{"d", &arrow.Decimal128Type{Precision: 38, Scale: 20}, func(b array.Builder) {
			for range 2 {
				d, err := decimal128.FromString("0.12345678901234567891", 38, 20)
				require.NoError(t, err)
				b.(*array.Decimal128Builder).Append(d)
			}
		}}, matrices("x", f32, 2, false, good)}},
		"bad number":      {vectors.ErrPayload, `document 1 (id "1"): bad metadata: column score: -Inf`, []column{score(math.Inf(-1)), matrices("x", f32, 2, false, good)}},
		"bad text":        {vectors.ErrPayload, `document 1 (id "1"): bad metadata: column tags: "\xff" is not UTF-8`, []column{nested, matrices("x", f32, 2, false, good)}},
		"bad key":         {vectors.ErrPayload, `"_subset_" is reserved`, []column{texts("_subset_", []string{"a", "b"}), matrices("x", f32, 2, false, good)}},
		"bad passage":     {vectors.ErrPayload, "document 0", []column{texts("_passage", []string{"a", "b"}), matrices("x", f32, 2, false, good)}},
		"two dimensions":  {vectors.ErrShape, "document 1: shapes do not match: dimension 3, documents before it have 2", []column{other}},
		"no finite value": {vectors.ErrValue, "token 0, component 1", []column{matrices("x", f32, 2, false, [][]float32{{1, 2}, {3, nan}})}},
	} {
		for _, format := range []string{"parquet", "file", "stream"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "x."+map[string]string{"parquet": "parquet", "file": "arrow", "stream": "arrow"}[format])
				write(t, path, format, 1, c.columns...)
				s, err := vectors.Open(ctx, vectors.Files{Vectors: path})
				if err == nil {
					defer s.Close()
					for _, derr := range s.Docs(ctx, 0, s.Len()) {
						err = derr
					}
				}
				require.ErrorIs(t, err, c.is)
				require.ErrorContains(t, err, c.text)
				var fe *vectors.FileError
				require.ErrorAs(t, err, &fe)
				require.Equal(t, path, fe.Path)
			})
		}
	}
	_, err := vectors.Open(ctx, vectors.Files{Vectors: "testdata/none.parquet"})
	require.ErrorIs(t, err, os.ErrNotExist)
	dir := t.TempDir()
	_, err = formats.Open(ctx, dir)
	require.ErrorIs(t, err, vectors.ErrFormat)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{"_data_files": [{"filename": "../x"}]}`), 0o666))
	_, err = formats.Open(ctx, dir)
	require.ErrorContains(t, err, `"../x" is no file beside it`)
	splits := t.TempDir()
	for _, name := range []string{"train.parquet", "test.parquet"} {
		text, err := os.ReadFile("testdata/f32.parquet")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(splits, name), text, 0o666))
	}
	_, err = formats.Open(ctx, splits)
	require.ErrorContains(t, err, "splits test, train")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = formats.Open(ended, "testdata/f32.parquet")
	require.ErrorIs(t, err, context.Canceled)
}

// A file that was replaced is noticed.
func TestChangedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.parquet")
	text, err := os.ReadFile("testdata/f32.parquet")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o666))
	s, err := formats.Open(ctx, path)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, text[:len(text)-1], 0o666))
	for _, err = range s.Docs(ctx, 0, 3) {
	}
	require.ErrorIs(t, err, vectors.ErrChanged)
}

// Damaged files are errors, and neither panics nor wrong shapes.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"f32.parquet", "half.arrow", "lz4.feather", "saved/data-00000-of-00002.arrow"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		f.Add(text, filepath.Ext(name) == ".parquet")
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte, isParquet bool) {
		path := filepath.Join(dir, "x.arrow")
		if isParquet {
			path = filepath.Join(dir, "x.parquet")
		}
		require.NoError(t, os.WriteFile(path, text, 0o666))
		s, err := formats.Open(ctx, path)
		if err != nil {
			return
		}
		defer s.Close()
		i := 0
		for d, err := range s.Docs(ctx, 0, s.Len()) {
			if err != nil {
				return
			}
			require.Len(t, d.Tokens, s.Rows(i)*s.Dim())
			i++
		}
		require.Equal(t, s.Len(), i)
	})
}
