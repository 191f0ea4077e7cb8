package vectors

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// member is one entry of a hand-made archive, whose claims may lie.
type member struct {
	name    string
	method  uint16
	content []byte // as it lies in the file
	plain   uint64 // claimed size when inflated
	packed  uint64 // claimed size in the file; 0 for the true one
	crc     uint32
	flags   uint16
}

func zipBytes(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		if m.packed == 0 {
			m.packed = uint64(len(m.content))
		}
		f, err := w.CreateRaw(&zip.FileHeader{
			Name: m.name, Method: m.method, CRC32: m.crc, Flags: m.flags,
			CompressedSize64: m.packed, UncompressedSize64: m.plain,
		})
		require.NoError(t, err)
		_, err = f.Write(m.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func stored(name string, content []byte) member {
	return member{name: name + ".npy", method: zip.Store, content: content, plain: uint64(len(content)), crc: crc32.ChecksumIEEE(content)}
}

func deflated(t testing.TB, name string, content []byte) member {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	require.NoError(t, err)
	_, err = w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return member{name: name + ".npy", method: zip.Deflate, content: b.Bytes(), plain: uint64(len(content)), crc: crc32.ChecksumIEEE(content)}
}

// zeros is the header of a float32 array, then n bytes of zero, deflated.
func zeros(t testing.TB, shape []int, n int) (m member, total int) {
	t.Helper()
	head, err := npyHeader("<f4", shape)
	require.NoError(t, err)
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	require.NoError(t, err)
	_, err = w.Write(head)
	require.NoError(t, err)
	_, err = io.CopyN(w, zeroReader{}, int64(n))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return member{name: "vectors.npy", method: zip.Deflate, content: b.Bytes(), plain: uint64(len(head) + n)}, len(head) + n
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func newNPZ(b []byte) (*NPZ, error) { return readNPZ(bytes.NewReader(b), int64(len(b)), "x.npz") }

func TestNumPyArchives(t *testing.T) {
	for _, name := range []string{"stored.npz", "deflated.npz"} {
		s := open(t, Files{Vectors: filepath.Join("testdata", name)})
		docs := all(t, s)
		require.Len(t, docs, 3)
		require.Equal(t, 4, s.Dim())
		require.Equal(t, fixture()[:8], docs[0].Tokens)
		require.Empty(t, docs[1].Tokens)
		require.Equal(t, fixture()[8:], docs[2].Tokens)
		require.Equal(t, map[string]string{"stored.npz": "2", "deflated.npz": "9"}[name], docs[2].ID)
	}
	_, err := Open(context.Background(), Files{Vectors: "testdata/string_ids.npz"})
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, "string_ids.npz[ids]")
	require.ErrorContains(t, err, "file of text")
	s := open(t, Files{Vectors: "testdata/string_ids.npz", IDs: tempFile(t, "ids.txt", []byte("x\ny\nz"))})
	require.Equal(t, "z", s.ID(2))
}

func TestSafetensorsFiles(t *testing.T) {
	docs := all(t, open(t, Files{Vectors: "testdata/ragged.safetensors"}))
	require.Equal(t, fixture()[8:], docs[2].Tokens)
	docs = all(t, open(t, Files{Vectors: "testdata/padded.safetensors"}))
	require.Equal(t, fixture()[:8], docs[0].Tokens)
	require.Equal(t, fixture()[8:12], docs[1].Tokens, "the first row is masked")
	require.Empty(t, docs[2].Tokens)
}

// A member larger than the memory for a stream goes through a temporary file,
// which leaves nothing behind.
func TestInflateToFile(t *testing.T) {
	const rows, dim = 3000, 256
	values := make([]float32, rows*dim)
	for i := range values {
		values[i] = float32(i % 1009)
	}
	plain := npyBytes(t, "<f4", []int{rows, dim}, values...)
	require.Greater(t, len(plain), 2*inflatedMemory)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	z, err := newNPZ(zipBytes(t, deflated(t, "vectors", plain)))
	require.NoError(t, err)
	require.Equal(t, []string{"vectors"}, z.Names())
	a, err := z.Array("vectors")
	require.NoError(t, err)
	got := make([]float32, 100)
	for _, from := range []int{0, len(values) - 100, 12345, 500_000} {
		require.NoError(t, a.Float32s(got, from))
		require.Equal(t, values[from:from+100], got)
	}
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestBadArchives(t *testing.T) {
	good := npyBytes(t, "<f4", []int{2, 2}, 1, 2, 3, 4)
	lie := func(m member, f func(m *member)) member { f(&m); return m }
	bomb, _ := zeros(t, []int{2, 2}, 64<<20) // the header says 16 bytes
	gigabyte, total := zeros(t, []int{1 << 20, 256}, 1<<20)
	require.Greater(t, total, 1<<20)
	rest := deflated(t, "vectors", append(bytes.Clone(good), make([]byte, 1<<20)...))
	for name, c := range map[string]struct {
		archive []byte
		reason  string
	}{
		"no zip":             {[]byte("PK\x03\x04 but nothing else"), "x.npz: "},
		"no such array":      {zipBytes(t, stored("lengths", good)), "no array"},
		"encrypted":          {zipBytes(t, lie(stored("vectors", good), func(m *member) { m.flags = 1 })), "encrypted"},
		"method":             {zipBytes(t, lie(stored("vectors", good), func(m *member) { m.method = 12 })), "method 12"},
		"stored size lies":   {zipBytes(t, lie(stored("vectors", good), func(m *member) { m.plain += 8 })), "stored member"},
		"beyond the file":    {zipBytes(t, lie(stored("vectors", good), func(m *member) { m.plain, m.packed = 1<<40, 1<<40 })), "of a file of"},
		"beyond deflate":     {zipBytes(t, lie(deflated(t, "vectors", good), func(m *member) { m.plain = 1 << 30 })), "beyond what deflate can do"},
		"exabytes":           {zipBytes(t, lie(deflated(t, "vectors", good), func(m *member) { m.plain = 1 << 63 })), "beyond what deflate can do"},
		"header under size":  {zipBytes(t, bomb), "takes only 16"},
		"header over size":   {zipBytes(t, gigabyte), "takes 1073741824"},
		"declares too few":   {zipBytes(t, lie(deflated(t, "vectors", good), func(m *member) { m.plain-- })), "more than"},
		"declares too many":  {zipBytes(t, lie(deflated(t, "vectors", good), func(m *member) { m.plain++ })), "fewer than"},
		"inflates to more":   {zipBytes(t, lie(rest, func(m *member) { m.plain = uint64(len(good)) })), "more than"},
		"no deflate":         {zipBytes(t, lie(deflated(t, "vectors", good), func(m *member) { m.content = []byte("no deflate stream at all") })), "corrupt"},
		"checksum":           {zipBytes(t, lie(deflated(t, "vectors", good), func(m *member) { m.crc++ })), "checksum"},
		"cut deflate stream": {zipBytes(t, lie(deflated(t, "vectors", good), func(m *member) { m.content = m.content[:len(m.content)-12] })), "fewer than"},
		"no npy":             {zipBytes(t, stored("vectors", []byte("hello, world"))), "does not begin"},
		"two of a name":      {zipBytes(t, stored("vectors", good), stored("vectors", good)), "two arrays"},
	} {
		t.Run(name, func(t *testing.T) {
			before := allocated()
			z, err := newNPZ(c.archive)
			if err == nil {
				var a *Array
				if a, err = z.Array("vectors"); err == nil {
					err = a.Float32s(make([]float32, a.Len()), 0)
					a.Close()
				}
			}
			require.Less(t, allocated()-before, uint64(8<<20))
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, "x.npz")
			require.ErrorContains(t, err, c.reason)
		})
	}
}

// Every byte of an archive counts: cut short anywhere it is an error.
func TestTruncatedArchives(t *testing.T) {
	for _, name := range []string{"stored.npz", "deflated.npz", "ragged.safetensors", "padded.safetensors"} {
		whole := readFile(t, filepath.Join("testdata", name))
		path := filepath.Join(t.TempDir(), "cut"+filepath.Ext(name))
		for n := range len(whole) {
			require.NoError(t, os.WriteFile(path, whole[:n], 0o644))
			_, err := Open(context.Background(), Files{Vectors: path})
			require.ErrorIs(t, err, ErrFormat, n)
			require.ErrorContains(t, err, path, n)
		}
	}
}

func TestBadSafetensors(t *testing.T) {
	v := `"vectors":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}`
	data := make([]byte, 8)
	for _, c := range []struct{ header, reason string }{
		{``, "not JSON"},
		{`[]`, "want a JSON object"},
		{`{` + v, "not JSON"},
		{`{` + v + `}}`, "not JSON"},
		{`{` + v + `,` + v + `}`, "twice"},
		{`{"vectors":3}`, `tensor "vectors"`},
		{`{"vectors":{}}`, "wants dtype"},
		{`{"vectors":{"dtype":"F32","shape":[2,1]}}`, "wants dtype"},
		{`{"vectors":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8,9]}}`, "wants dtype"},
		{`{"vectors":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8],"x":1}}`, "unknown field"},
		{`{"vectors":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}}`, "2.5"},
		{`{"vectors":{"dtype":"F32","shape":3,"data_offsets":[0,8]}}`, "list of integers"},
		{`{"vectors":{"dtype":"F32","shape":[[2],1],"data_offsets":[0,8]}}`, "in the place of an integer"},
		{`{"vectors":{"dtype":"F32","shape":[2,1],"data_offsets":[0,"8"]}}`, "in the place of an integer"},
		{`{"vectors":{"dtype":"F32","shape":[2,1],"data_offsets":null}}`, "list of integers"},
		{`{"vectors":{"dtype":8,"shape":[2,1],"data_offsets":[0,8]}}`, "cannot unmarshal number"},
		{`{"vectors":[]}`, "want a JSON object"},
		{`{"vectors":{"dtype":"F32","shape":[-2,-1],"data_offsets":[0,8]}}`, "length -2"},
		{`{"vectors":{"dtype":"F32","shape":[2,1],"data_offsets":[-8,0]}}`, "offsets -8"},
		{`{"vectors":{"dtype":"F32","shape":[2,1],"data_offsets":[8,0]}}`, "offsets 8 to 0"},
		{`{"vectors":{"dtype":"F32","shape":[3,1],"data_offsets":[0,8]}}`, "takes 12"},
		{`{"vectors":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}}`, "any file"},
		{`{"vectors":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}}`, "99999999999999999999"},
		{`{"vectors":{"dtype":"F32","shape":[4,1],"data_offsets":[0,16]}}`, "ends at byte 16 of 8"},
		{`{"vectors":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}`, "take only 4"},
		{`{"vectors":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}}`, "gap of 4"},
		{`{` + v + `,"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, "overlaps"},
		{`{"vectors":{"dtype":"F8_E4M3","shape":[8,1],"data_offsets":[0,8]}}`, "not read"},
		{`{"vectors":{"dtype":"F32","shape":[` + strings.Repeat("1,", 64) + `2],"data_offsets":[0,8]}}`, "axes"},
		{strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000), "not JSON"},
	} {
		b := safetensorsBytes(c.header, data)
		s, err := NewSafetensors(bytes.NewReader(b), int64(len(b)), "x.safetensors")
		if err == nil {
			_, err = s.Array("vectors")
		}
		require.ErrorIs(t, err, ErrFormat, c.header)
		require.ErrorContains(t, err, "x.safetensors", c.header)
		require.ErrorContains(t, err, c.reason, c.header)
	}
	for _, size := range []uint64{1 << 25, 1 << 62, 1<<64 - 1} {
		b := append(binary.LittleEndian.AppendUint64(nil, size), '{')
		before := allocated()
		_, err := NewSafetensors(bytes.NewReader(b), int64(len(b)), "x.safetensors")
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, "claims a header")
		require.Less(t, allocated()-before, uint64(1<<20))
	}
	b := safetensorsBytes(`{`+v+`}`, data)
	s, err := NewSafetensors(bytes.NewReader(b), int64(len(b)), "x.safetensors")
	require.NoError(t, err)
	_, err = s.Array("docs")
	require.ErrorContains(t, err, `no tensor named "docs"`)
}

func TestSafetensorsTypes(t *testing.T) {
	b := safetensorsBytes(`{"bf":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},`+
		`"b":{"dtype":"BOOL","shape":[2],"data_offsets":[4,6]},`+
		`"i":{"dtype":"I64","shape":[],"data_offsets":[6,14]},"e":{"dtype":"U8","shape":[0,3],"data_offsets":[6,6]}}`,
		[]byte{0x80, 0x3f, 0x20, 0xc0, 0, 1, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	s, err := NewSafetensors(bytes.NewReader(b), int64(len(b)), "x.safetensors")
	require.NoError(t, err)
	a, err := s.Array("bf")
	require.NoError(t, err)
	require.Equal(t, "bf16", a.Dtype)
	var f [2]float32
	require.NoError(t, a.Float32s(f[:], 0))
	require.Equal(t, [2]float32{1, -2.5}, f)
	var v [2]int64
	a, err = s.Array("b")
	require.NoError(t, err)
	require.NoError(t, a.Ints(v[:], 0))
	require.Equal(t, [2]int64{0, 1}, v)
	a, err = s.Array("i")
	require.NoError(t, err)
	require.NoError(t, a.Ints(v[:1], 0))
	require.Equal(t, int64(-2), v[0])
	a, err = s.Array("e")
	require.NoError(t, err)
	require.Zero(t, a.Len())
}

// Which array is meant is never guessed.
func TestPickArrays(t *testing.T) {
	vec := npyBytes(t, "<f4", []int{2, 2}, 1, 2, 3, 4)
	padded := npyBytes(t, "<f4", []int{1, 2, 2}, 1, 2, 3, 4)
	lengths := npyInts(t, "<i4", []int{1}, 2)
	mask := npyInts(t, "|b1", []int{1, 2}, 1, 0)
	for i, c := range []struct {
		members []member
		reason  string // "" is success
	}{
		{[]member{stored("x", vec), stored("lengths", lengths)}, ""},
		{[]member{stored("arr_0", padded), stored("other", lengths)}, ""},
		{[]member{stored("docs", padded), stored("mask", mask), stored("noise", vec)}, ""},
		{[]member{stored("docs", padded), {name: "readme.txt", content: []byte("hi"), plain: 2}}, ""},
		{[]member{stored("docs", padded), stored("data", padded)}, "docs and data"},
		{[]member{stored("a", padded), stored("b", padded)}, "several arrays of floats"},
		{[]member{stored("lengths", lengths)}, "holds no array of floats"},
		{[]member{stored("a", vec[:20])}, "x.npz[a]"},
		{[]member{stored("docs", vec), stored("mask", mask)}, "a mask fits"},
		{[]member{stored("docs", padded), stored("mask", mask), stored("lengths", lengths)}, "give one"},
		{[]member{stored("docs", vec), stored("lengths", lengths), stored("doclens", lengths)}, "lengths and doclens"},
		{[]member{stored("docs", lengths), stored("lengths", lengths)}, "want floats"},
		{[]member{stored("docs", padded), stored("ids", vec)}, "one row of integers"},
	} {
		path := tempFile(t, "x.npz", zipBytes(t, c.members...))
		s, err := Open(context.Background(), Files{Vectors: path})
		if c.reason == "" {
			require.NoError(t, err, i)
			require.Equal(t, 1, s.Len(), i)
			all(t, s)
			require.NoError(t, s.Close())
			continue
		}
		require.Error(t, err, i)
		require.ErrorContains(t, err, "x.npz", i)
		require.ErrorContains(t, err, c.reason, i)
	}
	// Files of their own take the place of what lies inside, even of broken ones.
	path := tempFile(t, "x.npz", zipBytes(t, stored("docs", padded), stored("mask", lengths), stored("ids", vec)))
	dir := filepath.Dir(path)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "l.txt"), []byte("1\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ids.json"), []byte("\ufeff"+`["é"]`), 0o644))
	docs := all(t, open(t, Files{Vectors: path, Lengths: filepath.Join(dir, "l.txt"), IDs: filepath.Join(dir, "ids.json")}))
	require.Equal(t, []Document{{ID: "é", Tokens: []float32{1, 2}}}, docs)
}

// A gigabyte of zeros in a small archive is read with little memory.
func TestHonestLargeArchive(t *testing.T) {
	if !effort.Long() {
		t.Skip("inflates 256 MiB")
	}
	m, total := zeros(t, []int{1 << 18, 256}, 1<<28)
	sum := crc32.NewIEEE()
	head, err := npyHeader("<f4", []int{1 << 18, 256})
	require.NoError(t, err)
	sum.Write(head)
	_, err = io.CopyN(sum, zeroReader{}, int64(total-len(head)))
	require.NoError(t, err)
	m.crc = sum.Sum32()
	z, err := newNPZ(zipBytes(t, m))
	require.NoError(t, err)
	a, err := z.Array("vectors")
	require.NoError(t, err)
	defer a.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	last := make([]float32, 4)
	require.NoError(t, a.Float32s(last, a.Len()-4))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), fmt.Sprint(total))
	require.Equal(t, make([]float32, 4), last)
}
