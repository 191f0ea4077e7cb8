package formats

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

var (
	f32     = arrow.PrimitiveTypes.Float32
	matrix  = arrow.ListOf(arrow.ListOf(f32))
	words   = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	struct2 = arrow.StructOf(arrow.Field{Name: "a", Type: words, Nullable: true}, arrow.Field{Name: "b", Type: arrow.BinaryTypes.StringView, Nullable: true})
)

// someTypes are all kinds of types that the library reads.
func someTypes() []arrow.DataType {
	two := []arrow.Field{{Name: "a", Type: f32, Nullable: true}, {Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}}
	return []arrow.DataType{
		arrow.Null, arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int16, &arrow.Decimal128Type{Precision: 9, Scale: 2},
		arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.Timestamp_ms, arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.Duration_s,
		arrow.BinaryTypes.Binary, arrow.BinaryTypes.String, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.LargeString,
		arrow.BinaryTypes.StringView, arrow.BinaryTypes.BinaryView, &arrow.FixedSizeBinaryType{ByteWidth: 3},
		arrow.ListOf(arrow.ListOf(arrow.BinaryTypes.String)), arrow.LargeListOf(f32), arrow.ListViewOf(f32), arrow.LargeListViewOf(f32), arrow.FixedSizeListOf(2, f32),
		arrow.MapOf(arrow.BinaryTypes.String, f32), struct2, words, arrow.ListOf(struct2),
		arrow.SparseUnionOf(two, []arrow.UnionTypeCode{0, 1}), arrow.DenseUnionOf(two, []arrow.UnionTypeCode{3, 5}),
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, f32),
	}
}

// recordOf is a record of three documents, with a column of a type besides.
func recordOf(more ...arrow.DataType) arrow.RecordBatch {
	fields := []arrow.Field{{Name: "vectors", Type: matrix}}
	for i, t := range more {
		fields = append(fields, arrow.Field{Name: string(rune('p' + i)), Type: t, Nullable: true})
	}
	meta := arrow.NewMetadata([]string{"key"}, []string{"value"})
	schema := arrow.NewSchema(fields, &meta)
	b := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	docs := b.Field(0).(*array.ListBuilder)
	tokens := docs.ValueBuilder().(*array.ListBuilder)
	for i := range 3 {
		docs.Append(true)
		for range i + 1 {
			tokens.Append(true)
			tokens.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{1, 2, 3, 4}, nil)
		}
	}
	for i := range more {
		b.Field(i + 1).AppendEmptyValue()
		b.Field(i + 1).AppendNull()
		if words, ok := b.Field(i + 1).(array.DictionaryBuilder); ok {
			_ = words.AppendValueFromString("a word")
			continue
		}
		b.Field(i + 1).AppendEmptyValue()
	}
	return b.NewRecordBatch()
}

// arrowFile is an IPC file or stream of records.
func arrowFile(t testing.TB, stream bool, records []arrow.RecordBatch, options ...ipc.Option) []byte {
	var b bytes.Buffer
	options = append(options, ipc.WithSchema(records[0].Schema()))
	var w interface {
		Write(arrow.RecordBatch) error
		Close() error
	} = ipc.NewWriter(&b, options...)
	if !stream {
		b.Reset()
		file, err := ipc.NewFileWriter(&b, options...)
		require.NoError(t, err)
		w = file
	}
	for _, r := range records {
		require.NoError(t, w.Write(r))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// openBytes opens and reads a file of Arrow; it is how many documents there are.
func openBytes(t testing.TB, b []byte) (int, error) {
	path := filepath.Join(t.TempDir(), "x.arrow")
	require.NoError(t, os.WriteFile(path, b, 0o666))
	s, err := Open(t.Context(), path)
	if err != nil {
		var fe *vectors.FileError
		require.ErrorAs(t, err, &fe)
		require.Equal(t, path, fe.Path)
		return 0, err
	}
	defer s.Close()
	for _, err := range s.Docs(t.Context(), 0, s.Len()) {
		if err != nil {
			return 0, err
		}
	}
	return s.Len(), nil
}

// parts are the tables of a file, and of its messages.
type parts struct {
	b, blocks         []byte
	footer            table
	messages, batches []table
}

func partsOf(t testing.TB, b []byte) (p parts) {
	n := int(binary.LittleEndian.Uint32(b[len(b)-10:]))
	p.b = b
	var err error
	p.footer, err = verify(b[len(b)-10-n:len(b)-10], footerLayout)
	require.NoError(t, err)
	count, blocks := p.footer.vector(3)
	p.blocks = blocks
	for i := range count {
		at, length := binary.LittleEndian.Uint64(blocks[24*i:]), binary.LittleEndian.Uint32(blocks[24*i+8:])
		m, err := verify(b[at+8:at+uint64(length)], messageLayout)
		require.NoError(t, err)
		p.messages, p.batches = append(p.messages, m), append(p.batches, m.tableField(2))
	}
	return p
}

// grow adds to the length of a vector.
func grow(t table, field int, by uint32) {
	at := t.fieldPos(field)
	at += int(binary.LittleEndian.Uint32(t.b[at:]))
	binary.LittleEndian.PutUint32(t.b[at:], binary.LittleEndian.Uint32(t.b[at:])+by)
}

// Files of all types are read; those whose batches have a column or a buffer too few are not.
func TestArrowOfAllTypes(t *testing.T) {
	for _, kind := range someTypes() {
		t.Run(kind.String(), func(t *testing.T) {
			r := recordOf(kind)
			for name, options := range map[string][]ipc.Option{"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}} {
				b := arrowFile(t, false, []arrow.RecordBatch{r, r}, options...)
				n, err := openBytes(t, b)
				require.NoError(t, err, name)
				require.Equal(t, 6, n)
				stream := arrowFile(t, true, []arrow.RecordBatch{r, r}, options...)
				require.NoError(t, checkArrow(t.Context(), bytes.NewReader(stream), int64(len(stream)), true))
				for _, field := range []int{1, 2} {
					p := partsOf(t, bytes.Clone(b))
					grow(p.batches[1], field, math.MaxUint32)
					_, err := openBytes(t, p.b)
					require.ErrorIs(t, err, vectors.ErrFormat)
					require.ErrorContains(t, err, "damaged metadata: a batch of")
				}
			}
		})
	}
	// One batch with everything, one that is a slice, and one with nothing.
	some := recordOf(struct2)
	for _, r := range []arrow.RecordBatch{recordOf(someTypes()...), some.NewSlice(1, 2), some.NewSlice(1, 1)} {
		n, err := openBytes(t, arrowFile(t, false, []arrow.RecordBatch{r}, ipc.WithLZ4()))
		require.NoError(t, err)
		require.EqualValues(t, r.NumRows(), n)
	}
}

// A batch that compresses very well is read: what its buffers say is seen to be true.
func TestArrowCompressedWell(t *testing.T) {
	b := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema([]arrow.Field{{Name: "vectors", Type: arrow.FixedSizeListOf(512, arrow.FixedSizeListOf(128, f32))}}, nil))
	docs := b.Field(0).(*array.FixedSizeListBuilder)
	for range 80 {
		docs.AppendEmptyValue()
	}
	r := b.NewRecordBatch()
	for name, option := range map[string]ipc.Option{"lz4": ipc.WithLZ4(), "zstd": ipc.WithZstd()} {
		file := arrowFile(t, false, []arrow.RecordBatch{r}, option)
		require.Less(t, len(file), 1<<20)
		check := func() error { return checkArrow(t.Context(), bytes.NewReader(file), int64(len(file)), false) }
		require.NoError(t, check(), name)
		p := partsOf(t, file)
		n, buffers := p.batches[0].vector(2)
		body := binary.LittleEndian.Uint64(p.blocks) + uint64(binary.LittleEndian.Uint32(p.blocks[8:]))
		length := file[body+binary.LittleEndian.Uint64(buffers[16*(n-1):]):]
		require.EqualValues(t, 80*512*128*4, binary.LittleEndian.Uint64(length))
		for _, wrong := range []uint64{80*512*128*4 + 1, 1 << 40, math.MaxInt64, 1 << 63} {
			binary.LittleEndian.PutUint64(length, wrong)
			err := check()
			require.ErrorIs(t, err, vectors.ErrFormat)
			require.ErrorContains(t, err, "compressed")
		}
	}
}

// What is damaged is named.
func TestDamagedArrow(t *testing.T) {
	good := arrowFile(t, false, []arrow.RecordBatch{recordOf(words, arrow.BinaryTypes.StringView, words)}, ipc.WithLZ4())
	put := func(in table, field int, v uint64, size int) {
		at := in.fieldPos(field)
		require.Positive(t, at)
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		copy(in.b[at:at+size], b[:size])
	}
	put64 := func(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
	vector := func(t table, field int) []byte { _, b := t.vector(field); return b }
	for name, c := range map[string]struct {
		change func(p parts)
		text   string
	}{
		"columns":              {func(p parts) { grow(p.footer.tableField(1), 1, 1<<28) }, "a vector of 268435460 elements of 4 bytes"},
		"metadata":             {func(p parts) { grow(p.footer.tableField(1), 2, math.MaxUint32-4) }, "a vector of"},
		"children":             {func(p parts) { grow(p.footer.tableField(1).tables(1)[0], 5, 1<<31) }, "a vector of"},
		"name":                 {func(p parts) { grow(p.footer.tableField(1).tables(1)[0], 0, 1<<20) }, "a vector of 1048583 elements of 1 bytes"},
		"type":                 {func(p parts) { put(p.footer.tableField(1).tables(1)[0], 2, 99, 1) }, "unknown kind 99"},
		"where the schema is":  {func(p parts) { put(p.footer, 1, math.MaxUint32, 4) }, "4 bytes at"},
		"where its fields are": {func(p parts) { put(p.footer.tableField(1), 1, 1<<30, 4) }, "4 bytes at 1073"},
		"places of fields":     {func(p parts) { put64(p.b[len(p.b)-10-len(p.footer.b)+p.footer.pos:], math.MaxUint32<<31) }, "4 bytes at"},
		"length of the footer": {func(p parts) { binary.LittleEndian.PutUint32(p.b[len(p.b)-10:], 1<<30) }, "of a file of"},
		"the end":              {func(p parts) { p.b[len(p.b)-1] = 0 }, "no ARROW1 at its end"},
		"blocks":               {func(p parts) { grow(p.footer, 3, 1<<16) }, "a vector of 65537 elements of 24 bytes"},
		"where a block is":     {func(p parts) { put64(p.blocks, 1<<40) }, "of a file of"},
		"before the file":      {func(p parts) { put64(p.blocks, 1<<63) }, "of a file of"},
		"length of a block":    {func(p parts) { binary.LittleEndian.PutUint32(p.blocks[8:], 1<<30) }, "block 0 has"},
		"body of a block":      {func(p parts) { put64(p.blocks[16:], 1<<40) }, "block 0 has"},
		"block of another":     {func(p parts) { copy(vector(p.footer, 2)[:24], p.blocks[:24]) }, "block 0 is a message of kind 3 (want 2)"},
		"dictionary":           {func(p parts) { put(p.footer.tableField(1).tables(1)[3].tableField(4), 0, 77, 8) }, "no column has dictionary"},
		"rows":                 {func(p parts) { put(p.batches[0], 0, 1<<40, 8) }, "1099511627776 values in"},
		"rows below none":      {func(p parts) { put(p.batches[0], 0, 1<<63, 8) }, "values in"},
		"values of a column":   {func(p parts) { put64(vector(p.batches[0], 1)[16:], 1<<33) }, "8589934592 values in"},
		"where a buffer is":    {func(p parts) { put64(vector(p.batches[0], 2)[16:], 1<<40) }, "buffer 1 has"},
		"length of a buffer":   {func(p parts) { put64(vector(p.batches[0], 2)[24:], 1<<62) }, "buffer 1 has 4611686018427387904 bytes"},
		"a buffer too short":   {func(p parts) { put64(vector(p.batches[0], 2)[24:], 5) }, "is compressed, and has 5 bytes"},
		"buffers of a view":    {func(p parts) { put64(vector(p.batches[0], 4), 1<<40) }, "column 0 of views has 1099511627776"},
		"views":                {func(p parts) { grow(p.batches[0], 4, math.MaxUint32) }, "a batch of 6 columns"},
		"kind of a message":    {func(p parts) { put(p.messages[0], 1, 2, 1) }, ""},
		"length of its body":   {func(p parts) { put(p.messages[0], 3, 1<<40, 8) }, "body"},
		"without compression": {func(p parts) {
			_, buffers := p.batches[0].vector(2)
			body := binary.LittleEndian.Uint64(p.blocks) + uint64(binary.LittleEndian.Uint32(p.blocks[8:]))
			put64(p.b[body+binary.LittleEndian.Uint64(buffers[16:]):], 1<<50)
		}, "is not one of 1125899906842624 compressed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := partsOf(t, bytes.Clone(good))
			c.change(p)
			_, err := openBytes(t, p.b)
			require.ErrorIs(t, err, vectors.ErrFormat)
			require.ErrorContains(t, err, c.text)
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, checkArrow(ended, bytes.NewReader(good), int64(len(good)), false), context.Canceled)
}

// Fields within fields without end, and one table at many places, are told from a schema.
func TestVerify(t *testing.T) {
	u16, u32 := binary.LittleEndian.AppendUint16, binary.LittleEndian.AppendUint32
	// 0: the root is at 16; 4: places of a table of 8 bytes with one field at byte 4.
	list := &layout{{}}
	(*list)[0] = slot{vector: true, table: list}
	b := u16(u16(u16(u32(nil, 16), 6), 8), 4)
	b = append(b, make([]byte, 6)...)
	b = u32(b, 12)             // 16: the places are 12 bytes before
	b = u32(b, 4)              // 20: the vector is at 24
	b = u32(b, 2)              // two elements
	b = u32(b, math.MaxUint32) // at 28, 32
	b = u32(b, math.MaxUint32)
	_, err := verify(b, list) // elements outside
	require.ErrorIs(t, err, vectors.ErrFormat)
	deep := u16(u16(u16(u32(nil, 16), 6), 8), 4)
	deep = append(deep, make([]byte, 6)...)
	const levels = 100
	for i := range levels {
		deep = u32(deep, uint32(12+16*i)) // to the places
		deep = u32(deep, 4)               // to the vector
		deep = u32(deep, 1)
		deep = u32(deep, 4) // to the next table
	}
	deep = u32(deep, uint32(12+16*levels))
	deep = append(deep, 0, 0, 0, 0, 0, 0, 0, 0)
	_, err = verify(deep, list)
	require.ErrorContains(t, err, "more than 64 times")
	wide := u16(u16(u16(u32(nil, 16), 6), 8), 4)
	wide = append(wide, make([]byte, 6)...)
	for i := range 40 { // both elements are the next table
		wide = u32(wide, uint32(12+20*i))
		wide = u32(wide, 4)
		wide = u32(wide, 2)
		wide = u32(wide, 8)
		wide = u32(wide, 4)
	}
	wide = u32(wide, uint32(12+20*40))
	wide = u32(wide, 4)
	wide = u32(wide, 0)
	_, err = verify(wide, list)
	require.ErrorContains(t, err, "again and again")
}

// Whatever number of a small file is damaged, opening it takes little memory.
func TestDamagedWords(t *testing.T) {
	r := recordOf(words, arrow.BinaryTypes.LargeString)
	files := [][]byte{
		arrowFile(t, false, []arrow.RecordBatch{r}, ipc.WithZstd()),
		arrowFile(t, true, []arrow.RecordBatch{recordOf(struct2)}),
	}
	if effort.Long() {
		half, err := os.ReadFile("testdata/half.arrow")
		require.NoError(t, err)
		files = append(files, half)
	}
	path := filepath.Join(t.TempDir(), "x.arrow")
	for _, b := range files {
		for at := 0; at+4 <= len(b); at += 4 {
			for _, v := range damage {
				bad := bytes.Clone(b)
				binary.LittleEndian.PutUint32(bad[at:], v)
				_ = frugal(t, path, bad)
			}
		}
	}
}

// damage are numbers that take the place of others.
var damage = []uint32{math.MaxUint32, math.MaxInt32, 1 << 24}

// frugal opens and reads a file, and fails the test if that takes much memory.
func frugal(t *testing.T, path string, b []byte) error {
	require.NoError(t, os.WriteFile(path, b, 0o666))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := Open(t.Context(), path)
	if err == nil {
		for range s.Docs(t.Context(), 0, s.Len()) {
		}
		s.Close()
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20), path)
	return err
}

// So is it for the schema of Arrow in a Parquet file.
func TestDamagedStoredSchema(t *testing.T) {
	b, err := os.ReadFile("testdata/f32.parquet")
	require.NoError(t, err)
	_, value, ok := bytes.Cut(b, []byte("ARROW:schema\x18"))
	require.True(t, ok)
	value = value[bytes.Index(value, []byte("////")):]
	n := 0
	for value[n] == '+' || value[n] == '/' || value[n] == '=' || value[n] >= '0' && value[n] <= '9' || value[n] >= 'A' && value[n] <= 'Z' || value[n] >= 'a' && value[n] <= 'z' {
		n++
	}
	value = value[:n-n%4]
	stored, err := base64.StdEncoding.DecodeString(string(value))
	require.NoError(t, err)
	path, refused := filepath.Join(t.TempDir(), "x.parquet"), 0
	for at := 0; at+4 <= len(stored); at += 4 {
		for _, v := range damage {
			bad := bytes.Clone(stored)
			binary.LittleEndian.PutUint32(bad[at:], v)
			file := bytes.Replace(b, value, []byte(base64.StdEncoding.EncodeToString(bad)), 1)
			if err := frugal(t, path, file); err != nil {
				require.ErrorIs(t, err, vectors.ErrFormat)
				refused++
			}
		}
	}
	require.Greater(t, refused, 100)
}
