package torch

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/torchtest"
	"github.com/plaid-ir/plaid/vectors"
)

func longs(values ...int64) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func floats(values ...float32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// TestWeights: the weights of a model, one of them transposed.
func TestWeights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pytorch_model.bin")
	require.NoError(t, os.WriteFile(path, torchtest.File(t,
		torchtest.Tensor{Name: "linear.weight", Class: "FloatStorage", Shape: []int{3, 2}, Strides: []int{1, 3}, Data: floats(1, 2, 3, 4, 5, 6)},
		torchtest.Tensor{Name: "b", Class: "BFloat16Storage", Shape: []int{1}, Data: []byte{0x80, 0x3f}},
		torchtest.Tensor{Name: "empty", Class: "FloatStorage", Shape: []int{0, 3}},
	), 0o600))
	f, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, []string{"linear.weight", "b", "empty"}, f.Names())
	for name, want := range map[string][]float32{"linear.weight": {1, 4, 2, 5, 3, 6}, "b": {1}, "empty": {}} {
		a, err := f.Array(name)
		require.NoError(t, err, name)
		got := make([]float32, a.Len())
		require.NoError(t, a.Float32s(got, 0), name)
		require.Equal(t, want, got, name)
	}
	_, err = f.Array("c")
	require.ErrorContains(t, err, `no tensor named "c"`)
	require.NoError(t, f.Close())
	_, err = Open(filepath.Join(t.TempDir(), "none.bin"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	_, err = Open(path)
	require.ErrorIs(t, err, vectors.ErrFormat)
	require.ErrorContains(t, err, path)
}

// TestPlain: what sqlitedict keeps for a string and for a number.
func TestPlain(t *testing.T) {
	v, err := StringOrInt([]byte("\x80\x05\x95\x09\x00\x00\x00\x00\x00\x00\x00\x8c\x05doc 1\x94."))
	require.NoError(t, err)
	require.Equal(t, "doc 1", v)
	v, err = StringOrInt([]byte("\x80\x05K\x07."))
	require.NoError(t, err)
	require.Equal(t, int64(7), v)
	_, err = StringOrInt([]byte("\x80\x05N."))
	require.ErrorIs(t, err, ErrUnsupported)
}

// TestHostilePickles: nothing but a tensor comes out of a pickle, and what is
// refused is named with its place.
func TestHostilePickles(t *testing.T) {
	good := string(torchtest.Pickle(torchtest.Tensor{Class: "FloatStorage", Shape: []int{3}}))
	replace := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	proto := "\x80\x02"
	for _, c := range []struct {
		name, pickle string
		kind         error
		message      string
	}{
		{"os.system", "cos\nsystem\n(S'false'\ntR.", ErrUnsupported, `offset 0: global "os.system"`},
		{"eval", proto + "cbuiltins\neval\nX\x01\x00\x00\x001\x85R.", ErrUnsupported, `"builtins.eval"`},
		{"stack global", "\x80\x04\x8c\x02os\x8c\x06system\x93.", ErrUnsupported, `"os.system"`},
		{"allowed module, other name", proto + "ctorch._utils\n_rebuild_qtensor\n.", ErrUnsupported, "_rebuild_qtensor"},
		{"parameter of nothing", proto + "ctorch._utils\n_rebuild_parameter\nN\x85R.", vectors.ErrFormat, "without a tensor"},
		{"attributes of nothing", proto + "Nb.", ErrUnsupported, "attributes"},
		{"attributes of a list", proto + "]Nb.", ErrUnsupported, "attributes"},
		{"string opcode", proto + "S'x'\n.", ErrUnsupported, `offset 2: opcode "S"`},
		{"instance", proto + "(ios\nsystem\n.", ErrUnsupported, `opcode "i"`},
		{"object", proto + "c" + strings.ReplaceAll(globalTensor, " ", "\n") + "\n)\x81.", ErrUnsupported, `opcode "\u0081"`},
		{"a dictionary without tensors", proto + "}}b.", ErrUnsupported, "holds no tensor"},
		{"extension", proto + "\x82\x01.", ErrUnsupported, "opcode"},
		{"protocol", "\x80\x06N.", ErrUnsupported, "protocol 6"},
		{"no tensor", proto + "N.", ErrUnsupported, "holds no tensor"},
		{"global as result", proto + "c" + strings.ReplaceAll(globalTensor, " ", "\n") + "\n.", ErrUnsupported, "holds no tensor"},
		{"tuple of integers", proto + "K\x01\x85.", ErrUnsupported, "item 0"},
		{"call of a storage", proto + "ctorch\nFloatStorage\n)R.", ErrUnsupported, "REDUCE"},
		{"call of nothing", proto + "N)R.", ErrUnsupported, "REDUCE"},
		{"arguments no tuple", proto + "ccollections\nOrderedDict\n]R.", vectors.ErrFormat, "no tuple"},
		{"empty", "", vectors.ErrFormat, "0 left"},
		{"no end", proto + "N", vectors.ErrFormat, "0 left"},
		{"empty stack", proto + ".", vectors.ErrFormat, "0 values"},
		{"two values", proto + "NN.", vectors.ErrFormat, "2 values"},
		{"open mark", proto + "(N.", vectors.ErrFormat, "marks"},
		{"mark on top", proto + "(.", vectors.ErrFormat, "marks"},
		{"pop past a mark", proto + "N(R.", vectors.ErrFormat, "stack holds 0 values"},
		{"tuple without mark", proto + "Nt.", vectors.ErrFormat, "no mark"},
		{"remember a mark", proto + "(q\x00.", vectors.ErrFormat, "mark"},
		{"remember nothing", proto + "q\x00.", vectors.ErrFormat, "nothing to remember"},
		{"empty memo", proto + "h\x07.", vectors.ErrFormat, "memo 7"},
		{"append to nothing", proto + "Na.", vectors.ErrFormat, "no container"},
		{"append to a dict", proto + "}Na.", vectors.ErrFormat, "container"},
		{"odd items", proto + "}(Nu.", vectors.ErrFormat, "container"},
		{"huge string", proto + "X\xff\xff\xff\xffabc", vectors.ErrFormat, "string of 4294967295 bytes"},
		{"huger string", proto + "\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc", vectors.ErrFormat, "string of 18446744073709551615 bytes"},
		{"wide integer", proto + "\x8a\x09123456789.", vectors.ErrFormat, "integer of 9 bytes"},
		{"integer cut", proto + "\x8a\xff12", vectors.ErrFormat, "255 bytes wanted"},
		{"deep stack", proto + strings.Repeat("]", maxStack+1), ErrUnsupported, "deeper"},
		{"deep marks", proto + strings.Repeat("(", maxStack+1), ErrUnsupported, "deeper"},
		{"deep nesting", proto + ")" + strings.Repeat("\x85", 500_000) + ".", ErrUnsupported, "no tensor"},
		{"memo bomb", proto + "N" + strings.Repeat("\x94", maxMemo+1), ErrUnsupported, "memo"},
		{"doubling", proto + ")" + strings.Repeat("q\x00h\x00\x86", 100_000) + ".", ErrUnsupported, "no tensor"},
		{"list in itself", proto + "]q\x00h\x00a.", ErrUnsupported, "no tensor"},
		{"oversized", strings.Repeat("N", maxPickle+1), ErrUnsupported, "bytes"},
		{"not a storage", replace("storage", "garbage"), vectors.ErrFormat, "not that of a storage"},
		{"dtype no storage class", replace("torch\nFloatStorage", "collections\nOrderedDict"), vectors.ErrFormat, "malformed"},
		{"complex storage", replace("FloatStorage", "ComplexFloatStorage"), ErrUnsupported, "ComplexFloatStorage"},
		{"persistent id no tuple", proto + "NQ.", vectors.ErrFormat, "not that of a storage"},
		{"storage too small", replace("cuda:0J\x03", "cuda:0J\x02"), vectors.ErrFormat, "exceeds its storage"},
		{"negative storage", replace("cuda:0J\x03\x00\x00\x00", "cuda:0J\xff\xff\xff\xff"), vectors.ErrFormat, "malformed"},
		{"offset past the end", replace("QK\x00", "QK\x01"), vectors.ErrFormat, "exceeds its storage"},
		{"offset no integer", replace("QK\x00", "QN"), vectors.ErrFormat, "malformed"},
		{"negative dimension", replace("(J\x03\x00\x00\x00t", "(J\xff\xff\xff\xfft"), vectors.ErrFormat, "dimension 0"},
		{"strides past the end", replace("(J\x01\x00\x00\x00t", "(J\x02\x00\x00\x00t"), vectors.ErrFormat, "exceeds its storage"},
		{"negative stride", replace("(J\x01\x00\x00\x00t", "(J\xff\xff\xff\xfft"), vectors.ErrFormat, "malformed"},
		{"fewer strides", replace("(J\x01\x00\x00\x00t", ")"), vectors.ErrFormat, "malformed"},
		{"shape overflow", replace("(J\x03\x00\x00\x00t(J\x01\x00\x00\x00t",
			"(J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7ft(K\x01K\x01K\x01t"), vectors.ErrFormat, "too large"},
	} {
		_, err := unpickleTensors([]byte(c.pickle))
		require.ErrorIs(t, err, c.kind, c.name)
		require.ErrorContains(t, err, c.message, c.name)
	}
	_, err := unpickleTensors([]byte(good))
	require.NoError(t, err)
	for n := range len(good) {
		_, err := unpickleTensors([]byte(good[:n]))
		require.ErrorIs(t, err, vectors.ErrFormat, "cut to %d bytes", n)
	}
}

// TestPickleProtocol4: the same tensor as newer protocols write it, in a list.
func TestPickleProtocol4(t *testing.T) {
	var b bytes.Buffer
	text := func(s string) { b.WriteString("\x8c" + string(rune(len(s))) + s + "\x94") }
	b.WriteString("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00]\x94(")
	text("torch._utils")
	text("_rebuild_tensor_v2")
	b.WriteString("\x93\x94((")
	text("storage")
	text("torch")
	text("LongStorage")
	b.WriteString("\x93\x94")
	text("7")
	text("cpu")
	b.WriteString("\x8a\x02\x2c\x01t\x94QK\x0aK\x05K\x02\x86\x94K\x02K\x01\x86\x94\x89")
	text("collections")
	text("OrderedDict")
	b.WriteString("\x93\x94)R\x94}(K\x01G?\xf0\x00\x00\x00\x00\x00\x00u\x88t\x94R\x94e.")
	pickle := bytes.Replace(b.Bytes(), []byte("\x88t"), []byte("t"), 1) // metadata is the seventh argument
	got, err := unpickleTensors(pickle)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, pickleTensor{
		storage: &pickleStorage{dtype: "<i8", key: "7", numel: 300}, offset: 10, shape: []int{5, 2}, numel: 10,
	}, *got[0].pickleTensor)
}

func TestHostileArchives(t *testing.T) {
	spec := torchtest.Tensor{Class: "LongStorage", Shape: []int{4}, Data: longs(1, 2, 3, 4)}
	good := torchtest.File(t, spec)
	pickle := torchtest.Pickle(spec)
	entries := func(more ...any) map[string][]byte {
		m := map[string][]byte{"a/data.pkl": pickle, "a/data/0": spec.Data}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1].([]byte)
		}
		return m
	}
	with := func(more ...any) []byte { return torchtest.Archive(t, zip.Store, entries(more...)) }
	without := func(name string) []byte {
		m := entries()
		delete(m, name)
		return torchtest.Archive(t, zip.Store, m)
	}
	for _, c := range []struct {
		name    string
		data    []byte
		kind    error
		message string
	}{
		{"empty", nil, vectors.ErrFormat, "not a torch archive"},
		{"text", []byte("centroids"), vectors.ErrFormat, "not a torch archive"},
		{"old format", append([]byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."), pickle...), ErrUnsupported, "before 1.6"},
		{"bare pickle", pickle, ErrUnsupported, "bare pickle"},
		{"no pickle", without("a/data.pkl"), vectors.ErrFormat, "0 data.pkl"},
		{"two pickles", with("b/data.pkl", pickle), vectors.ErrFormat, "2 data.pkl"},
		{"no storage", without("a/data/0"), vectors.ErrFormat, `lacks storage "0"`},
		{"storage elsewhere", with("a/data.pkl", bytes.Replace(pickle, []byte("\x01\x00\x00\x000"), []byte("\x0a\x00\x00\x00../../../x"), 1)), vectors.ErrFormat, "lacks storage"},
		{"storage too small", with("a/data/0", spec.Data[:31]), vectors.ErrFormat, "31 bytes have no <i8 (4,) from element 0 on"},
		{"big endian", with("a/byteorder", []byte("big")), ErrUnsupported, `"big"`},
		{"compressed", torchtest.Archive(t, zip.Deflate, entries()), ErrUnsupported, "compressed"},
		{"pickle of too many bytes", with("a/data.pkl", make([]byte, maxPickle+1)), ErrUnsupported, "more than 4194304"},
	} {
		_, err := New(bytes.NewReader(c.data), int64(len(c.data)), "a.pt")
		require.ErrorIs(t, err, c.kind, c.name)
		require.ErrorContains(t, err, c.message, c.name)
	}

	// No cut may panic, and none may yield four numbers other than the right ones.
	for n := range len(good) {
		_, err := New(bytes.NewReader(good[:n]), int64(n), "a.pt")
		require.ErrorIs(t, err, vectors.ErrFormat, "cut to %d bytes", n)
	}
}

func product(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}

func FuzzPickle(f *testing.F) {
	f.Add(torchtest.Pickle(torchtest.Tensor{Class: "FloatStorage", Shape: []int{3, 4}}))
	f.Add(torchtest.Pickle(torchtest.Tensor{Class: "HalfStorage", Shape: []int{}}, torchtest.Tensor{Class: "LongStorage", Shape: []int{5}}))
	f.Add(torchtest.Pickle(torchtest.Tensor{Name: "a.weight", Class: "BFloat16Storage", Shape: []int{3, 2}, Strides: []int{1, 3}}))
	f.Add([]byte("cos\nsystem\n(S'false'\ntR."))
	f.Add([]byte("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01\x8a\x01\xffe."))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := unpickleTensors(data)
		if err != nil {
			if !errors.Is(err, ErrUnsupported) && !errors.Is(err, vectors.ErrFormat) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		for _, p := range tensors {
			if p.offset < 0 || p.numel < 0 || p.offset > p.storage.numel || p.numel > p.storage.numel || p.numel != product(p.shape) {
				t.Fatalf("tensor out of its storage: %+v", p)
			}
		}
	})
}

func FuzzFile(f *testing.F) {
	spec := torchtest.Tensor{Class: "LongStorage", Shape: []int{4}, Data: longs(1, 2, 3, 4)}
	f.Add(torchtest.File(f, spec))
	f.Add(torchtest.File(f, torchtest.Tensor{Name: "a.weight", Class: "LongStorage", Shape: []int{2, 2}, Strides: []int{1, 2}, Data: longs(1, 2, 3, 4)}))
	f.Add(torchtest.File(f, spec, torchtest.Tensor{Class: "ByteStorage", Shape: []int{2, 2}, Data: []byte{1, 2, 3, 4}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := New(bytes.NewReader(data), int64(len(data)), "a.pt")
		if err != nil {
			return
		}
		for _, name := range tensors.Names() {
			a, err := tensors.Array(name)
			if err != nil {
				continue
			}
			n := min(a.Len(), 1000)
			_ = a.Ints(make([]int64, n), 0)
			_ = a.Float32s(make([]float32, n), a.Len()-n)
		}
	})
}
