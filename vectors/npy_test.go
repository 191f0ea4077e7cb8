package vectors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fixture is the 5 × 4 array of testdata/make.py.
func fixture() []float32 {
	v := make([]float32, 20)
	for i := range v {
		v[i] = (float32(i) - 9) / 8
	}
	return v
}

func TestNumPyFiles(t *testing.T) {
	for name, dtype := range map[string]string{"v1_f2": "<f2", "v2_f4": "<f4", "v3_f8be": ">f8"} {
		n, err := new(inputs).openNPY(filepath.Join("testdata", name+".npy"))
		require.NoError(t, err)
		require.Equal(t, dtype, n.Dtype)
		require.Equal(t, []int{5, 4}, n.Shape)
		got := make([]float32, 20)
		require.NoError(t, n.Float32s(got, 0))
		require.Equal(t, fixture(), got)
		require.NoError(t, n.Float32s(got[:3], 17))
		require.Equal(t, fixture()[17:], got[:3])
		require.NoError(t, n.Close())
		require.NoError(t, n.Close())
		require.Error(t, n.Float32s(got, 0), "closed")
	}
	for name, dtype := range map[string]string{"lengths_i2be": ">i2", "lengths_u8": "<u8"} {
		n, err := new(inputs).openNPY(filepath.Join("testdata", name+".npy"))
		require.NoError(t, err)
		require.Equal(t, dtype, n.Dtype)
		got := make([]int64, 3)
		require.NoError(t, n.Ints(got, 0))
		require.Equal(t, []int64{2, 0, 3}, got)
		require.NoError(t, n.Close())
	}
	n, err := new(inputs).openNPY("testdata/scalar_f8.npy")
	require.NoError(t, err)
	defer n.Close()
	require.Empty(t, n.Shape)
	require.Equal(t, 1, n.Len())
	var one [1]float32
	require.NoError(t, n.Float32s(one[:], 0))
	require.Equal(t, float32(0.75), one[0])

	for name, reason := range map[string]string{
		"fortran": "Fortran order", "object": "pickles", "struct": "structured", "strings": "strings",
	} {
		path := filepath.Join("testdata", name+".npy")
		_, err := new(inputs).openNPY(path)
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, reason)
	}
}

// What NumPy wrote and what npyHeader writes are the same bytes.
func TestHeaderAsNumPyWrites(t *testing.T) {
	require.Equal(t, readFile(t, "testdata/v1_f2.npy"), npyBytes(t, "<f2", []int{5, 4}, fixture()...))
	require.Equal(t, readFile(t, "testdata/scalar_f8.npy"), npyBytes(t, "<f8", nil, 0.75))
	require.Equal(t, readFile(t, "testdata/lengths_i2be.npy"), npyInts(t, ">i2", []int{3}, 2, 0, 3))
	require.Equal(t, readFile(t, "testdata/mask_bool.npy"), npyInts(t, "|b1", []int{3, 2}, 1, 1, 0, 1, 0, 0))
}

func TestTruncatedNPY(t *testing.T) {
	for _, name := range []string{"v1_f2", "v2_f4", "v3_f8be", "scalar_f8"} {
		whole := readFile(t, filepath.Join("testdata", name+".npy"))
		for n := range len(whole) {
			_, err := NewNPY(bytes.NewReader(whole[:n]), int64(n), "short.npy")
			require.ErrorIs(t, err, ErrFormat, n)
			require.ErrorContains(t, err, "short.npy: ", n)
			require.ErrorContains(t, err, map[bool]string{true: "the file is empty", false: "cut short"}[n == 0], n)
		}
		long := append(bytes.Clone(whole), 0)
		_, err := NewNPY(bytes.NewReader(long), int64(len(long)), "long.npy")
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, "takes only")
	}
	whole := npyBytes(t, "<f4", []int{2, 3}, 1, 2, 3, 4, 5, 6)
	_, err := NewNPY(bytes.NewReader(whole), int64(len(whole)-5), "x.npy")
	require.EqualError(t, err, "x.npy: malformed: is cut short: 19 bytes of data, <f4 (2, 3) takes 24")
}

// A file that shrinks while it is open is an error, not garbage.
func TestShrunkNPY(t *testing.T) {
	whole := npyBytes(t, "<f4", []int{2}, 1, 2)
	n, err := NewNPY(bytes.NewReader(whole[:len(whole)-4]), int64(len(whole)), "x.npy")
	require.NoError(t, err)
	var got [2]float32
	require.NoError(t, n.Float32s(got[:1], 0))
	require.ErrorIs(t, n.Float32s(got[:], 0), ErrFormat)
}

func TestNPYHeaders(t *testing.T) {
	data := f32Bytes(1, 2)
	for _, h := range []string{
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
		"{'descr':'<f4','fortran_order':False,'shape':(2,)}",
		`{"shape": (2L,), "descr": "<f4", "fortran_order": True}` + "   \n",
		"{'descr':'<f4','fortran_order':False,'shape':(2,1,),}",
		"\n{ 'descr' : '<f4' ,\t'fortran_order' : False , 'shape' : ( 1 , 2 ) , }",
	} {
		b := rawNPY(h, data)
		n, err := NewNPY(bytes.NewReader(b), int64(len(b)), "x.npy")
		require.NoError(t, err, h)
		var got [2]float32
		require.NoError(t, n.Float32s(got[:], 0))
		require.Equal(t, [2]float32{1, 2}, got)
	}
	ok := "'fortran_order': False, 'shape': (2,)"
	for h, reason := range map[string]string{
		"":                                 "dictionary",
		"[]":                               "dictionary",
		"{":                                "want a string",
		"{'descr': '<f4', " + ok:           "comma or a brace",
		"{'descr': '<f4', " + ok + "} x":   "after the dictionary",
		"{'descr': '<f4', " + ok + "}\x00": "after the dictionary",
		"{" + ok + "}":                     "no descr",
		"{'descr': '<f4', 'shape': (2,)}":  "no fortran_order",
		"{'descr': '<f4', 'fortran_order': False}":                                              "no shape",
		"{'descr': '<f4', 'descr': '<f4', " + ok + "}":                                          "twice",
		"{'descr': '<f4', 'x': 1, " + ok + "}":                                                  "not known",
		"{'descr': '<f4, " + ok + "}":                                                           "not read",
		"{'descr': \"<f4, " + ok + "}":                                                          "without an end",
		"{'descr': '<c8', " + ok + "}":                                                          "not read",
		"{'descr': '|f4', " + ok + "}":                                                          "byte order",
		"{'descr': 'f4', " + ok + "}":                                                           "byte order",
		"{'descr': '', " + ok + "}":                                                             "not known",
		"{'descr': [('a', '<f4')], " + ok + "}":                                                 "structured",
		"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}":                                   "True or False",
		"{'descr': '<f4', 'fortran_order': False, 'shape': 2}":                                  "tuple",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}":                                "comma",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}":                              "0 or more",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}":                                "0 or more",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2":                                  "comma",
		"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}":                              "Fortran",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}":            "any file",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 2)}":           "any file",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}":             "any file",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296,0)}":          "any file",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,)}":             "takes 4611686018427387904",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (" + strings.Repeat("1,", 65) + ")}": "axes",
	} {
		b := rawNPY(h, data)
		before := allocated()
		_, err := NewNPY(bytes.NewReader(b), int64(len(b)), "x.npy")
		require.Less(t, allocated()-before, uint64(1<<20), h)
		require.ErrorIs(t, err, ErrFormat, h)
		require.ErrorContains(t, err, "x.npy: ", h)
		require.ErrorContains(t, err, reason, h)
	}
	for b, reason := range map[string]string{
		npyMagic + "\x00\x00\x00\x00\x00\x00\x00\x00": "version 0.0",
		npyMagic + "\x04\x01\x00\x00\x00\x00\x00\x00": "version 4.1",
		npyMagic + "\x02\x00\xff\xff\xff\xff\x00\x00": "header of 4294967295 bytes",
		npyMagic + "\x02\x00\xff\xff\x00\x00\x00\x00": "header ends at byte 65547",
		"\x93NUMPX\x01\x00":                           "does not begin",
	} {
		_, err := NewNPY(strings.NewReader(b), int64(len(b)), "x.npy")
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, reason)
	}
}

func TestElementAccess(t *testing.T) {
	b := npyInts(t, "<i4", []int{4}, 1, -2, 3, 1<<31-1)
	n, err := NewNPY(bytes.NewReader(b), int64(len(b)), "x.npy")
	require.NoError(t, err)
	var f [4]float32
	require.NoError(t, n.Float32s(f[:], 0))
	require.Equal(t, [4]float32{1, -2, 3, 1 << 31}, f)
	require.NoError(t, n.Float32s(nil, 4))
	require.ErrorIs(t, n.Float32s(f[:], 1), ErrShape)
	require.ErrorIs(t, n.Float32s(f[:1], -1), ErrShape)
	require.ErrorIs(t, n.Ints(make([]int64, 1), math.MaxInt), ErrShape)
	require.ErrorIs(t, n.Bytes(make([]byte, 1), 0), ErrShape)

	b = npyBytes(t, "<f4", []int{1}, 1)
	n, err = NewNPY(bytes.NewReader(b), int64(len(b)), "x.npy")
	require.NoError(t, err)
	require.ErrorIs(t, n.Ints(make([]int64, 1), 0), ErrShape)

	b = rawNPY("{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", bytes.Repeat([]byte{0xff}, 8))
	n, err = NewNPY(bytes.NewReader(b), int64(len(b)), "x.npy")
	require.NoError(t, err)
	err = n.Ints(make([]int64, 1), 0)
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, "18446744073709551615")
	require.NoError(t, n.Float32s(f[:1], 0))
	require.Equal(t, float32(1<<64), f[0])

	b = rawNPY("{'descr': '<u1', 'fortran_order': False, 'shape': (3,)}", []byte{1, 2, 255})
	n, err = NewNPY(bytes.NewReader(b), int64(len(b)), "x.npy")
	require.NoError(t, err)
	require.Equal(t, "|u1", n.Dtype)
	var raw [2]byte
	require.NoError(t, n.Bytes(raw[:], 1))
	require.Equal(t, [2]byte{2, 255}, raw)
	require.ErrorIs(t, n.Bytes(raw[:], 2), ErrShape)
}

func TestNPYWriterFaults(t *testing.T) {
	for _, dtype := range []string{"", "f4", "<f3", "|O", "bf16"} {
		_, err := npyHeader(dtype, []int{1})
		require.ErrorIs(t, err, ErrFormat, dtype)
	}
	_, err := npyHeader("<f4", []int{-1})
	require.ErrorIs(t, err, ErrShape)

	write := func(dtype string, n int, f func(w *NPYWriter) error) error {
		w, err := NewNPYWriter(&bytes.Buffer{}, dtype, n)
		require.NoError(t, err)
		err = f(w)
		require.ErrorIs(t, w.Close(), errors.Unwrap(err), "Close repeats the first fault")
		require.Error(t, w.Close())
		return err
	}
	require.ErrorIs(t, write("<f2", 3, func(w *NPYWriter) error { return w.Float32s([]float32{0, 65519, 65520}) }), ErrValue)
	require.ErrorIs(t, write("<f4", 1, func(w *NPYWriter) error { return w.Float32s([]float32{0, 1}) }), ErrShape)
	require.ErrorIs(t, write("<f4", 1, func(w *NPYWriter) error { return w.Ints([]int64{1}) }), ErrShape)
	require.ErrorIs(t, write("<f4", 1, func(w *NPYWriter) error { return w.Bytes([]byte{1}) }), ErrShape)
	require.ErrorIs(t, write("<i4", 1, func(w *NPYWriter) error { return w.Float32s([]float32{1}) }), ErrShape)
	for dtype, v := range map[string]int64{"|i1": 128, "|u1": -1, "<i2": -32769, "<u2": 65536, "<i4": 1 << 31, "<u4": -1, "<u8": -1, "|b1": 2} {
		require.ErrorIs(t, write(dtype, 1, func(w *NPYWriter) error { return w.Ints([]int64{v}) }), ErrShape, dtype)
	}
	path := filepath.Join(t.TempDir(), "x.npy")
	require.NoError(t, os.WriteFile(path, []byte("kept"), 0o644))
	w, err := CreateNPY(path, "<f4", 2)
	require.NoError(t, err)
	require.NoError(t, w.Float32s([]float32{1}))
	err = w.Close()
	require.ErrorIs(t, err, ErrShape)
	require.ErrorContains(t, err, path)
	require.Equal(t, "kept", string(readFile(t, path)))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Error(t, w.Float32s([]float32{1}))

	w, err = CreateNPY(path, "|u1", 2)
	require.NoError(t, err)
	require.NoError(t, w.Bytes([]byte{7, 8}))
	require.NoError(t, w.Close())
	require.Error(t, w.Bytes([]byte{7}))
	n, err := new(inputs).openNPY(path)
	require.NoError(t, err)
	defer n.Close()
	require.Equal(t, 2, n.Len())
}

func TestNPYRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code := rapid.SampledFrom([]string{"f2", "f4", "f8"}).Draw(t, "type")
		dtype := rapid.SampledFrom([]string{"<", ">"}).Draw(t, "order") + code
		values := rapid.SliceOf(rapid.Float32()).Draw(t, "values")
		if code == "f2" {
			for i := range values {
				values[i] = float32(math.Mod(float64(int32(math.Float32bits(values[i]))), 2048)) / 64
			}
		}
		b := new(bytes.Buffer)
		w, err := NewNPYWriter(b, dtype, len(values))
		require.NoError(t, err)
		cut := rapid.IntRange(0, len(values)).Draw(t, "cut")
		require.NoError(t, w.Float32s(values[:cut]))
		require.NoError(t, w.Float32s(values[cut:]))
		require.NoError(t, w.Close())
		require.Zero(t, (b.Len()-len(values)*int(code[1]-'0'))%64)
		n, err := NewNPY(bytes.NewReader(b.Bytes()), int64(b.Len()), "x.npy")
		require.NoError(t, err)
		require.Equal(t, dtype, n.Dtype)
		got := make([]float32, len(values)-cut)
		require.NoError(t, n.Float32s(got, cut))
		require.Equal(t, values[cut:], got)
	})
	rapid.Check(t, func(t *rapid.T) {
		dtype := rapid.SampledFrom([]string{"|i1", "<i2", ">i4", "<i8", ">i8", "|u1", ">u2", "<u4", ">u8"}).Draw(t, "type")
		k, big, err := parseDtype(dtype)
		require.NoError(t, err)
		require.Equal(t, dtype, k.dtypeName(big))
		values := rapid.SliceOf(rapid.Int64()).Draw(t, "values")
		for i := range values {
			values[i] = intElement(binary.LittleEndian.AppendUint64(nil, uint64(values[i])), 0, k)
			if k == kindU64 {
				values[i] &= math.MaxInt64
			}
		}
		b := new(bytes.Buffer)
		require.NoError(t, WriteNPYInts(b, dtype, []int{1, len(values)}, values))
		n, err := NewNPY(bytes.NewReader(b.Bytes()), int64(b.Len()), "x.npy")
		require.NoError(t, err)
		got := make([]int64, len(values))
		require.NoError(t, n.Ints(got, 0))
		require.Equal(t, append([]int64{}, values...), got)
	})
}

// Arrays longer than a block are stitched together right.
func TestBlocks(t *testing.T) {
	const n = 3*blockBytes/8 + 17
	values := make([]int64, n)
	for i := range values {
		values[i] = int64(i) * 1_000_003
	}
	b := new(bytes.Buffer)
	require.NoError(t, WriteNPYInts(b, ">i8", []int{n}, values))
	a, err := NewNPY(bytes.NewReader(b.Bytes()), int64(b.Len()), "x.npy")
	require.NoError(t, err)
	got := make([]int64, n-5)
	require.NoError(t, a.Ints(got, 5))
	require.Equal(t, values[5:], got)
	require.LessOrEqual(t, cap(a.buf), blockBytes)
}

func TestFileErrorText(t *testing.T) {
	fe := NewFileError("docs.npy", fmt.Errorf("%w: NaN", ErrValue))
	require.EqualError(t, fe, "docs.npy: value is not finite: NaN")
	fe.Doc, fe.Token, fe.Dim = 17, 3, 5
	require.EqualError(t, fe, "docs.npy: document 17, token 3, component 5: value is not finite: NaN")
	fe.Line, fe.ID = 20, "d\n17"
	require.EqualError(t, fe, `docs.npy: line 20, document 17 (id "d\n17"), token 3, component 5: value is not finite: NaN`)
	require.ErrorIs(t, fe, ErrValue)
	require.EqualError(t, &FileError{Doc: -1, Token: -1, Dim: -1, Line: -1, ID: "a", Err: ErrShape}, `document with id "a": shapes do not match`)
	require.Contains(t, (&FileError{}).Error(), "unknown fault")
}

// allocated is how many bytes were ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
