package interop

import (
	"archive/zip"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHostilePickles: nothing but a tensor comes out of a pickle, and what is
// refused is named with its place.
func TestHostilePickles(t *testing.T) {
	good := string(pickled(tensorSpec{"FloatStorage", []int{3}, nil}))
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
		{"allowed module, other name", proto + "ctorch._utils\n_rebuild_parameter\n.", ErrUnsupported, "_rebuild_parameter"},
		{"string opcode", proto + "S'x'\n.", ErrUnsupported, `offset 2: opcode "S"`},
		{"instance", proto + "(ios\nsystem\n.", ErrUnsupported, `opcode "i"`},
		{"object", proto + "c" + strings.ReplaceAll(globalTensor, " ", "\n") + "\n)\x81.", ErrUnsupported, `opcode "\u0081"`},
		{"build", proto + "}}b.", ErrUnsupported, `opcode "b"`},
		{"extension", proto + "\x82\x01.", ErrUnsupported, "opcode"},
		{"protocol", "\x80\x06N.", ErrUnsupported, "protocol 6"},
		{"no tensor", proto + "N.", ErrUnsupported, "neither a tensor"},
		{"global as result", proto + "c" + strings.ReplaceAll(globalTensor, " ", "\n") + "\n.", ErrUnsupported, "neither"},
		{"tuple of integers", proto + "K\x01\x85.", ErrUnsupported, "item 0"},
		{"call of a storage", proto + "ctorch\nFloatStorage\n)R.", ErrUnsupported, "REDUCE"},
		{"call of nothing", proto + "N)R.", ErrUnsupported, "REDUCE"},
		{"arguments no tuple", proto + "ccollections\nOrderedDict\n]R.", ErrBroken, "no tuple"},
		{"empty", "", ErrBroken, "0 left"},
		{"no end", proto + "N", ErrBroken, "0 left"},
		{"empty stack", proto + ".", ErrBroken, "0 values"},
		{"two values", proto + "NN.", ErrBroken, "2 values"},
		{"open mark", proto + "(N.", ErrBroken, "marks"},
		{"mark on top", proto + "(.", ErrBroken, "marks"},
		{"pop past a mark", proto + "N(R.", ErrBroken, "stack holds 0 values"},
		{"tuple without mark", proto + "Nt.", ErrBroken, "no mark"},
		{"remember a mark", proto + "(q\x00.", ErrBroken, "mark"},
		{"remember nothing", proto + "q\x00.", ErrBroken, "nothing to remember"},
		{"empty memo", proto + "h\x07.", ErrBroken, "memo 7"},
		{"append to nothing", proto + "Na.", ErrBroken, "no container"},
		{"append to a dict", proto + "}Na.", ErrBroken, "container"},
		{"odd items", proto + "}(Nu.", ErrBroken, "container"},
		{"huge string", proto + "X\xff\xff\xff\xffabc", ErrBroken, "string of 4294967295 bytes"},
		{"huger string", proto + "\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc", ErrBroken, "string of 18446744073709551615 bytes"},
		{"wide integer", proto + "\x8a\x09123456789.", ErrBroken, "integer of 9 bytes"},
		{"integer cut", proto + "\x8a\xff12", ErrBroken, "255 bytes wanted"},
		{"deep stack", proto + strings.Repeat("]", maxStack+1), ErrUnsupported, "deeper"},
		{"deep marks", proto + strings.Repeat("(", maxStack+1), ErrUnsupported, "deeper"},
		{"deep nesting", proto + ")" + strings.Repeat("\x85", 500_000) + ".", ErrUnsupported, "no tensor"},
		{"memo bomb", proto + "N" + strings.Repeat("\x94", maxMemo+1), ErrUnsupported, "memo"},
		{"doubling", proto + ")" + strings.Repeat("q\x00h\x00\x86", 100_000) + ".", ErrUnsupported, "no tensor"},
		{"list in itself", proto + "]q\x00h\x00a.", ErrUnsupported, "no tensor"},
		{"oversized", strings.Repeat("N", maxPickle+1), ErrUnsupported, "bytes"},
		{"not a storage", replace("storage", "garbage"), ErrBroken, "not that of a storage"},
		{"dtype no storage class", replace("torch\nFloatStorage", "collections\nOrderedDict"), ErrBroken, "malformed"},
		{"complex storage", replace("FloatStorage", "ComplexFloatStorage"), ErrUnsupported, "ComplexFloatStorage"},
		{"persistent id no tuple", proto + "NQ.", ErrBroken, "not that of a storage"},
		{"storage too small", replace("cuda:0J\x03", "cuda:0J\x02"), ErrBroken, "exceeds its storage"},
		{"negative storage", replace("cuda:0J\x03\x00\x00\x00", "cuda:0J\xff\xff\xff\xff"), ErrBroken, "malformed"},
		{"offset past the end", replace("QK\x00", "QK\x01"), ErrBroken, "exceeds its storage"},
		{"offset no integer", replace("QK\x00", "QN"), ErrBroken, "malformed"},
		{"negative dimension", replace("(J\x03\x00\x00\x00t", "(J\xff\xff\xff\xfft"), ErrBroken, "dimension 0"},
		{"strides", replace("(J\x01\x00\x00\x00t", "(J\x02\x00\x00\x00t"), ErrUnsupported, "not contiguous"},
		{"fewer strides", replace("(J\x01\x00\x00\x00t", ")"), ErrBroken, "malformed"},
		{"shape overflow", replace("(J\x03\x00\x00\x00t(J\x01\x00\x00\x00t",
			"(J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7ft(K\x01K\x01K\x01t"), ErrBroken, "too large"},
	} {
		_, err := unpickleTensors([]byte(c.pickle))
		require.ErrorIs(t, err, c.kind, c.name)
		require.ErrorContains(t, err, c.message, c.name)
	}
	_, err := unpickleTensors([]byte(good))
	require.NoError(t, err)
	for n := range len(good) {
		_, err := unpickleTensors([]byte(good[:n]))
		require.ErrorIs(t, err, ErrBroken, "cut to %d bytes", n)
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
	}, *got[0])
}

func TestHostileArchives(t *testing.T) {
	spec := tensorSpec{"LongStorage", []int{4}, raw("<i8", []int{1, 2, 3, 4})}
	good := torchFile(t, spec)
	pickle := pickled(spec)
	entries := func(more ...any) map[string][]byte {
		m := map[string][]byte{"a/data.pkl": pickle, "a/data/0": spec.data}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1].([]byte)
		}
		return m
	}
	with := func(more ...any) []byte { return archive(t, zip.Store, entries(more...)) }
	without := func(name string) []byte {
		m := entries()
		delete(m, name)
		return archive(t, zip.Store, m)
	}
	for _, c := range []struct {
		name    string
		data    []byte
		kind    error
		message string
	}{
		{"empty", nil, ErrBroken, "not a torch archive"},
		{"text", []byte("centroids"), ErrBroken, "not a torch archive"},
		{"old format", append([]byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."), pickle...), ErrUnsupported, "before 1.6"},
		{"bare pickle", pickle, ErrUnsupported, "bare pickle"},
		{"no pickle", without("a/data.pkl"), ErrBroken, "0 data.pkl"},
		{"two pickles", with("b/data.pkl", pickle), ErrBroken, "2 data.pkl"},
		{"no storage", without("a/data/0"), ErrBroken, `lacks storage "0"`},
		{"storage elsewhere", with("a/data.pkl", bytes.Replace(pickle, []byte("\x01\x00\x00\x000"), []byte("\x0a\x00\x00\x00../../../x"), 1)), ErrBroken, "lacks storage"},
		{"storage too small", with("a/data/0", spec.data[:31]), ErrBroken, "31 bytes have no <i8 (4,) from element 0 on"},
		{"big endian", with("a/byteorder", []byte("big")), ErrUnsupported, `"big"`},
		{"compressed", archive(t, zip.Deflate, entries()), ErrUnsupported, "compressed"},
		{"pickle of too many bytes", with("a/data.pkl", make([]byte, maxPickle+1)), ErrUnsupported, "more than 1048576"},
	} {
		_, err := readPT(bytes.NewReader(c.data), int64(len(c.data)))
		require.ErrorIs(t, err, c.kind, c.name)
		require.ErrorContains(t, err, c.message, c.name)
	}

	// No cut may panic, and none may yield four numbers other than the right ones.
	for n := range len(good) {
		_, err := readPT(bytes.NewReader(good[:n]), int64(n))
		require.ErrorIs(t, err, ErrBroken, "cut to %d bytes", n)
	}
}

// TestBrokenFolderPT: faults of .pt files name the file.
func TestBrokenFolderPT(t *testing.T) {
	f := newFixture()
	for name, c := range map[string]struct {
		file    string
		data    []byte
		kind    error
		message string
	}{
		"one bucket tensor": {"buckets.pt", torchFile(t, tensorSpec{"FloatStorage", []int{3}, make([]byte, 12)}), ErrBroken, "holds 1 tensors, want 2"},
		"wrong class":       {"2.codes.pt", torchFile(t, tensorSpec{"FloatStorage", []int{4}, make([]byte, 16)}), ErrBroken, "2.codes.pt is <f4 [4]"},
		"system":            {"centroids.pt", archive(t, zip.Store, map[string][]byte{"x/data.pkl": []byte("cos\nsystem\n.")}), ErrUnsupported, "centroids.pt"},
		"short":             {"0.residuals.pt", torchFile(t, tensorSpec{"ByteStorage", []int{2, 2}, make([]byte, 4)}), ErrBroken, "0.residuals.pt has 2 rows"},
	} {
		o := f.colbert(t)
		o[c.file] = c.data
		_, err := Open(o.write(t, t.TempDir()))
		require.ErrorIs(t, err, c.kind, name)
		require.ErrorContains(t, err, c.message, name)
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
	f.Add(pickled(tensorSpec{"FloatStorage", []int{3, 4}, nil}))
	f.Add(pickled(tensorSpec{"HalfStorage", []int{}, nil}, tensorSpec{"LongStorage", []int{5}, nil}))
	f.Add([]byte("cos\nsystem\n(S'false'\ntR."))
	f.Add([]byte("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01\x8a\x01\xffe."))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := unpickleTensors(data)
		if err != nil {
			if !isFault(err) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		for _, p := range tensors {
			if p.offset < 0 || p.numel < 0 || p.offset+p.numel > p.storage.numel || p.numel != product(p.shape) {
				t.Fatalf("tensor out of its storage: %+v", p)
			}
		}
	})
}

func FuzzPT(f *testing.F) {
	spec := tensorSpec{"LongStorage", []int{4}, raw("<i8", []int{1, 2, 3, 4})}
	f.Add(torchFile(f, spec))
	f.Add(torchFile(f, spec, tensorSpec{"ByteStorage", []int{2, 2}, []byte{1, 2, 3, 4}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := readPT(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for _, a := range tensors {
			n := min(a.Len(), 1000)
			_ = a.Ints(make([]int64, n), 0)
			_ = a.Float32s(make([]float32, n), a.Len()-n)
		}
	})
}

// FuzzOpenNPYFolder replaces one file of a good folder.
func FuzzOpenNPYFolder(f *testing.F) {
	names := []string{"metadata.json", "doclens.0.json", "centroids.npy", "0.codes.npy", "2.residuals.npy", "ivf.npy", "ivf_lengths.npy"}
	good := newFixture().nextPlaid()
	for i, name := range names {
		f.Add(uint8(i), good[name])
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		o := newFixture().nextPlaid()
		o[names[int(which)%len(names)]] = data
		x, err := Open(o.write(t, t.TempDir()))
		if err != nil {
			if !isFault(err) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		tokens := int64(0)
		for b, err := range x.Blocks(t.Context(), 3) {
			if err != nil {
				if !isFault(err) {
					t.Fatalf("error of no kind: %v", err)
				}
				return
			}
			tokens += int64(len(b.Codes))
		}
		if tokens != x.Tokens {
			t.Fatalf("%d tokens of %d", tokens, x.Tokens)
		}
		if _, err := x.VerifyIVF(t.Context()); err != nil && !isFault(err) {
			t.Fatal(err)
		}
	})
}
