package vectors

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bad is a collection that must be refused: files by name, and which plays
// which part.
type bad struct {
	name   string
	files  map[string][]byte
	use    Files // names, turned into paths
	want   error
	place  string // part of the message: the file and the place in it
	reason string
}

func text(s string) []byte { return []byte(s) }

func TestBadInput(t *testing.T) {
	two := npyBytes(t, "<f4", []int{2, 3}, 1, 2, 3, 4, 5, 6)          // 2 tokens of 3
	pad := npyBytes(t, "<f4", []int{2, 2, 1}, 1, 2, 3, 4)             // 2 documents of 2 tokens of 1
	jsonl := text(`{"vectors":[[1]]}` + "\n" + `{"vectors":[[2]]}\n`) // not JSON lines at the end
	ragged := func(lengths string) (map[string][]byte, Files) {
		return map[string][]byte{"d.npy": two, "l.txt": text(lengths)}, Files{Vectors: "d.npy", Lengths: "l.txt"}
	}
	withIDs := func(name, ids string) (map[string][]byte, Files) {
		return map[string][]byte{"d.npy": pad, name: text(ids)}, Files{Vectors: "d.npy", IDs: name}
	}
	payload := func(lines string) (map[string][]byte, Files) {
		return map[string][]byte{"d.npy": pad, "ids.txt": text("a\nb"), "p.jsonl": text(lines)},
			Files{Vectors: "d.npy", IDs: "ids.txt", Payload: "p.jsonl"}
	}
	var cases []bad
	add := func(name string, files map[string][]byte, use Files, want error, place, reason string) {
		cases = append(cases, bad{name, files, use, want, place, reason})
	}
	one := func(file string, content []byte) (map[string][]byte, Files) {
		return map[string][]byte{file: content}, Files{Vectors: file}
	}
	row := func(files map[string][]byte, use Files) func(name string, want error, place, reason string) {
		return func(name string, want error, place, reason string) { add(name, files, use, want, place, reason) }
	}

	// Suffixes.
	row(nil, Files{})("nothing", ErrFormat, "", "no file of vectors")
	row(nil, Files{Vectors: "none.npy"})("no file", fs.ErrNotExist, "none.npy: ", "no such file")
	row(one("d.pt", two))("suffix", ErrSuffix, "d.pt: ", ".pt is not read as vectors: vectors are read from .npy")
	row(one("d.csv", two))("suffix of texts", ErrSuffix, "d.csv: ", ".csv holds texts, no vectors")
	row(one("d.xml", two))("another suffix", ErrFormat, "d.xml: ", ".xml holds no vectors: vectors are read from .npy")
	row(one("d.jsonl.gz", text("\x1f\x8b\x08")))("gz", ErrFormat, "d.jsonl.gz: ", "gunzip")
	row(one("d.npz", two))("npy as npz", ErrFormat, "d.npz: ", "is not what its suffix says: npy")
	row(one("d.npy", text(`{"id":1}`)))("jsonl as npy", ErrFormat, "d.npy: ", "is not what its suffix says: jsonl")
	row(one("d.npy", text("PK\x03\x04 and more")))("npz as npy", ErrFormat, "d.npy: ", "is not what its suffix says: npz")
	row(one("d.npy", text("something else")))("unknown as npy", ErrFormat, "d.npy: ", "is not what its suffix says: unknown")
	row(one("d.jsonl", two))("npy as jsonl", ErrFormat, "d.jsonl: ", "is not what its suffix says: npy")
	row(one("d.jsonl", text("\x1f\x8b\x08\x00\x00")))("gzip as jsonl", ErrFormat, "d.jsonl: ", "is not what its suffix says: gzip")
	row(one("d.safetensors", two))("npy as safetensors", ErrFormat, "d.safetensors: ", "is not what its suffix says: npy")
	row(one("d.npy", nil))("empty npy", ErrFormat, "d.npy: ", "the file is empty")
	row(one("d.npz", nil))("empty npz", ErrFormat, "d.npz: ", "the file is empty")
	row(one("d.safetensors", nil))("empty safetensors", ErrFormat, "d.safetensors: ", "the file is empty")

	// Shapes.
	row(one("d.npy", two))("no lengths", ErrShape, "d.npy: ", "lengths are missing")
	row(one("d.npy", npyBytes(t, "<f4", []int{2}, 1, 2)))("rank 1", ErrShape, "d.npy: ", "rank 1")
	row(one("d.npy", npyBytes(t, "<f4", nil, 1)))("rank 0", ErrShape, "d.npy: ", "() has rank 0")
	row(one("d.npy", npyBytes(t, "<f4", []int{1, 1, 1, 1}, 1)))("rank 4", ErrShape, "d.npy: ", "rank 4")
	row(one("d.npy", npyInts(t, "<i4", []int{1, 1, 1}, 1)))("integers", ErrType, "d.npy: ", `holds int32, want floats of 16, 32 or 64 bits: .astype("float32") converts`)
	row(one("d.npy", readFile(t, "testdata/fortran.npy")))("order", ErrFormat, "d.npy: ", "Fortran order")
	row(one("d.npy", npyBytes(t, "<f4", []int{1, 1, 4097}, make([]float32, 4097)...)))("dimension", ErrShape, "d.npy: ", "dimension 4097")
	row(one("d.npy", npyBytes(t, "<f4", []int{1, 1, 0})))("dimension 0", ErrShape, "d.npy: ", "dimension 0")
	row(one("d.npy", rawNPY("{'descr':'<f4','fortran_order':False,'shape':(1152921504606846975,0,4)}", nil)))(
		"documents of nothing", ErrFormat, "d.npy: ", "any file")
	row(one("d.npy", rawNPY("{'descr':'<f4','fortran_order':False,'shape':(1048577,0,4)}", nil)))(
		"many documents of nothing", ErrShape, "d.npy: ", "1048577 without any data")
	row(one("d.npy", rawNPY("{'descr':'<f4','fortran_order':False,'shape':(8589934592,0,4)}", nil)))(
		"too many documents", ErrShape, "d.npy: ", "8589934592 documents, at most")

	// Lengths.
	row(ragged("1\n2\n"))("sum over", ErrShape, "l.txt: ", "2 lengths sum to 3, "+"DIR/d.npy has 2 rows")
	row(ragged("1\n"))("sum under", ErrShape, "l.txt: ", "sum to 1")
	row(ragged(""))("no lengths in the file", ErrShape, "l.txt: ", "0 lengths sum to 0")
	row(ragged("2\n-1\n1"))("negative", ErrShape, "l.txt: document 1: ", "length -1")
	row(ragged("0\n4611686018427387904\n"))("2^62", ErrShape, "l.txt: document 1: ", "length 4611686018427387904")
	row(ragged("2\n99999999999999999999\n"))("beyond int64", ErrShape, "l.txt: line 2: ", "99999999999999999999")
	row(ragged("1\n\n1\n"))("blank line", ErrFormat, "l.txt: line 2: ", "not a length")
	row(ragged("1\n1.0\n"))("fraction", ErrFormat, "l.txt: line 2: ", `"1.0" is not a length`)
	row(ragged(strings.Repeat("1", 500)))("long line", ErrFormat, "l.txt: line 1: ", "too long")
	lengths := func(name string, content []byte) (map[string][]byte, Files) {
		return map[string][]byte{"d.npy": two, name: content}, Files{Vectors: "d.npy", Lengths: name}
	}
	row(lengths("l.npy", npyInts(t, "<i8", []int{2}, 3, -1)))("npy negative", ErrShape, "l.npy: document 0: ", "length 3")
	row(lengths("l.npy", npyInts(t, "<i8", []int{2}, 1, 1<<62)))("npy huge", ErrShape, "l.npy: document 1: ", "4611686018427387904")
	row(lengths("l.npy", rawNPY("{'descr':'<u8','fortran_order':False,'shape':(1,)}", bytes.Repeat([]byte{0xff}, 8))))(
		"npy unsigned", ErrFormat, "l.npy: ", "element 0")
	row(lengths("l.npy", two))("npy floats", ErrType, "l.npy: ", "lengths are float32, want integers: .astype(int) converts")
	row(lengths("l.npz", two))("npz", ErrFormat, "l.npz: ", "not from .npz")
	row(lengths("l.json", text("[1, 2.5]")))("json fraction", ErrFormat, "l.json: document 1: ", "2.5")
	row(lengths("l.json", text("[1, 1")))("json cut", ErrFormat, "l.json: ", "after byte")
	row(lengths("l.json", text("[1, }")))("json malformed", ErrFormat, "l.json: ", "after byte")
	row(lengths("l.json", text(`{"a":1}`)))("json object", ErrFormat, "l.json: ", "want a JSON list")
	row(lengths("l.json", text("[1,1] 2")))("json more", ErrFormat, "l.json: ", "text after")
	row(lengths("l.json", nil))("json empty", ErrFormat, "l.json: ", "EOF")
	padded := func(lengths string) (map[string][]byte, Files) {
		return map[string][]byte{"d.npy": pad, "l.txt": text(lengths)}, Files{Vectors: "d.npy", Lengths: "l.txt"}
	}
	row(padded("1\n3\n"))("padded over", ErrShape, "l.txt: document 1: ", "length 3, DIR/d.npy has 2 rows for each")
	row(padded("1\n-3\n"))("padded negative", ErrShape, "l.txt: document 1: ", "length -3")
	row(padded("1\n"))("padded count", ErrShape, "l.txt: ", "1 lengths for the 2 of")
	row(map[string][]byte{"d.jsonl": text(`{"vectors":[]}`), "l.txt": text("0")}, Files{Vectors: "d.jsonl", Lengths: "l.txt"})(
		"lengths for jsonl", ErrShape, "d.jsonl: ", "lengths of their own")

	// Masks.
	mask := func(name string, content []byte) (map[string][]byte, Files) {
		return map[string][]byte{"d.npy": pad, name: content}, Files{Vectors: "d.npy", Mask: name}
	}
	row(mask("m.npy", npyInts(t, "|b1", []int{2, 1}, 1, 1)))("mask shape", ErrShape, "m.npy: ", "(2, 1)")
	row(mask("m.npy", npyInts(t, "|b1", []int{4}, 1, 1, 1, 1)))("mask rank", ErrShape, "m.npy: ", "(4,)")
	row(mask("m.npy", npyBytes(t, "<f4", []int{2, 2}, 1, 1, 1, 1)))("mask floats", ErrShape, "m.npy: ", "<f4")
	row(mask("m.txt", text("1")))("mask text", ErrFormat, "m.txt: ", "read from .npy")
	row(map[string][]byte{"d.npy": two, "m.npy": npyInts(t, "|b1", []int{2, 1}, 1, 1)}, Files{Vectors: "d.npy", Mask: "m.npy"})(
		"mask for rank 2", ErrShape, "m.npy: ", "needs lengths")

	// Ids.
	row(withIDs("i.txt", "a\n"))("one id", ErrID, "i.txt: ", "1 ids, and DIR/d.npy needs 2")
	row(withIDs("i.txt", "a\nb\nc\n"))("three ids", ErrID, "i.txt: line 3: ", "one id more than the 2")
	row(withIDs("i.txt", "a\n\n"))("empty id", ErrID, "i.txt: line 2: ", "is empty")
	row(withIDs("i.txt", "a\r\n\r\n"))("empty id, CRLF", ErrID, "i.txt: line 2: ", "is empty")
	row(withIDs("i.txt", "a\na\n"))("duplicate", ErrID, "i.txt: line 2: ", `"a" is the id of line 1 and line 2`)
	row(withIDs("i.txt", "a\nb\tc"))("tab", ErrID, "i.txt: line 2: ", "U+0009")
	row(withIDs("i.txt", "a\rb\nc"))("lone CR", ErrID, "i.txt: line 1: ", "U+000D")
	row(withIDs("i.txt", "a\nb\u0085"))("C1 control", ErrID, "i.txt: line 2: ", "U+0085")
	row(withIDs("i.txt", "a\n\ufeffb"))("byte order mark", ErrID, "i.txt: line 2: ", "byte order mark")
	row(withIDs("i.txt", "a\n\xc3\x28"))("not UTF-8", ErrID, "i.txt: line 2: ", "UTF-8")
	row(withIDs("i.txt", "a\n"+strings.Repeat("x", MaxIDBytes+1)))("long", ErrID, "i.txt: line 2: ", "at most 4096")
	row(withIDs("i.txt", "a\n"+strings.Repeat("x", 1<<20)))("very long", ErrID, "i.txt: line 2: ", "more than 4096")
	row(withIDs("i.json", `["a"]`))("json count", ErrID, "i.json: ", "1 ids, and")
	row(withIDs("i.json", `["a", "a"]`))("json duplicate", ErrID, "i.json: document 1: ", "row 0 and row 1")
	row(withIDs("i.json", `["a", "b\n"]`))("json newline", ErrID, "i.json: document 1: ", "U+000A")
	row(withIDs("i.json", `["a", ""]`))("json empty id", ErrID, "i.json: document 1: ", "is empty")
	row(withIDs("i.json", `["a", null]`))("json null", ErrID, "i.json: document 1: ", "neither")
	row(withIDs("i.json", `["a", 1.5]`))("json number", ErrID, "i.json: document 1: ", "neither")
	row(withIDs("i.json", "[\"a\", \"\xff\"]"))("json not UTF-8", ErrID, "i.json: document 1: ", "UTF-8")
	row(withIDs("i.json", `["\ud83d\ude00", "\ud800"]`))("json half of a pair", ErrID, "i.json: document 1: ", "surrogate")
	row(withIDs("i.json", `["a", "\ud800\ud800\udc00"]`))("json half before a pair", ErrID, "i.json: document 1: ", "surrogate")
	row(withIDs("i.json", `["a", "\udc00\u0061"]`))("json second half", ErrID, "i.json: document 1: ", "surrogate")
	row(withIDs("i.json", `["a", "b`))("json cut", ErrFormat, "i.json: ", "after byte")
	row(withIDs("i.npz", "a\nb"))("npz ids", ErrID, "i.npz: ", "read from text")
	row(withIDs("i.npy", string(npyInts(t, "<i4", []int{2}, 5, 5))))("npy duplicate", ErrID, "i.npy: document 1: ", `"5"`)
	row(withIDs("i.npy", string(npyInts(t, "<i4", []int{1}, 5))))("npy count", ErrID, "i.npy: ", "1 ids")
	row(withIDs("i.npy", string(npyBytes(t, "<f4", []int{2}, 5, 6))))("npy floats", ErrID, "i.npy: ", "integers")

	// Payloads.
	row(payload(`{"_id":"a"}`+"\n\n"+`{"_id":"b"`))("payload cut", ErrFormat, "p.jsonl: line 3: ", "without an end")
	row(payload(`{"_id":"a","x":[}`))("payload malformed", ErrFormat, "p.jsonl: line 1: ", "")
	row(payload(`{"_id":"a","x":nul}`))("payload literal", ErrFormat, "p.jsonl: line 1: ", "not JSON")
	row(payload("{\"_id\":\"x\",\"t\":\"\xff\"}\n{\"_id\":\"b\",\"t\":\"\xff\"}"))("payload not UTF-8", ErrPayload, `p.jsonl: line 2, document 1 (id "b"): `, "t: a string that is not UTF-8")
	row(payload(`{"_id":"b","t":"\ud83d"}`))("half a character", ErrPayload, `p.jsonl: line 1, document 1 (id "b"): `, "t:")
	row(payload(`{"_id":"x"}`+"\n"+`{"_id":"y"}`))("payload of others", ErrID, "p.jsonl: ", `none of its objects is of a document: line 1 has the id "x", and a document "a"`)
	row(map[string][]byte{"d.npy": pad, "p.jsonl": text(`{"_id":"x"}` + "\n" + `{"_id":"y"}`)}, Files{Vectors: "d.npy", Payload: "p.jsonl"})(
		"ids without those of documents", ErrID, "p.jsonl: line 1, document 0: ", `the _id "x", and the documents have no ids`)
	row(payload(`{"_id":"a\ud800"}`))("payload id of half a pair", ErrID, "p.jsonl: line 1: ", "surrogate")
	row(payload(`["a"]`))("payload no object", ErrFormat, "p.jsonl: line 1: ", "JSON object")
	row(payload(`{"text":"a"}`))("payload without id", ErrID, "p.jsonl: line 1: ", "neither _id nor id")
	row(payload(`{"_id":{}}`))("payload id", ErrID, "p.jsonl: line 1: ", "neither a string")
	row(payload(`{"_id":"a"}`+"\n"+`{"_id":"a"}`))("payload twice", ErrID, "p.jsonl: line 2: ", "line 1 and line 2")
	row(map[string][]byte{"d.npy": pad, "p.jsonl": text(`{"id":"a"}`)}, Files{Vectors: "d.npy", Payload: "p.jsonl"})(
		"payload count", ErrShape, "p.jsonl: ", "1 objects for 2 documents")
	row(map[string][]byte{"d.npy": pad, "p.jsonl.gz": nil}, Files{Vectors: "d.npy", Payload: "p.jsonl.gz"})(
		"payload gz", ErrFormat, "p.jsonl.gz: ", "the bytes are neither of gzip nor of zstd or xz")
	row(one("d.jsonl.zst", nil))("zst", ErrFormat, "d.jsonl.zst: ", "unzstd")
	row(one("d.npy", text("\xfd7zXZ\x00")))("xz", ErrFormat, "d.npy: ", "xz in a .npy file")
	row(one("d.jsonl", jsonl))("jsonl", ErrFormat, "d.jsonl: line 2, document 1: ", "text after the object")

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
			}
			for _, p := range []*string{&c.use.Vectors, &c.use.Lengths, &c.use.Mask, &c.use.IDs, &c.use.Payload} {
				if *p != "" {
					*p = filepath.Join(dir, *p)
				}
			}
			before := allocated()
			_, err := Open(context.Background(), c.use)
			require.Less(t, allocated()-before, uint64(24<<20))
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.place)
			require.ErrorContains(t, err, strings.ReplaceAll(c.reason, "DIR", dir))
			var fe *FileError
			require.ErrorAs(t, err, &fe)
			require.Less(t, len(err.Error()), 600)
		})
	}
	_, err := Open(context.Background(), Files{Vectors: filepath.Join(t.TempDir(), "folder.npy")})
	require.ErrorIs(t, err, fs.ErrNotExist)
	dir := filepath.Join(t.TempDir(), "folder.npy")
	require.NoError(t, os.Mkdir(dir, 0o755))
	_, err = Open(context.Background(), Files{Vectors: dir})
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, "not a regular file")
	_, err = Open(context.Background(), Files{Vectors: filepath.Dir(dir)})
	require.ErrorIs(t, err, ErrSuffix)
	require.ErrorContains(t, err, "it is a folder: name the file of vectors in it")
}

func TestNotFinite(t *testing.T) {
	dir := t.TempDir()
	lengths := filepath.Join(dir, "l.txt")
	ids := filepath.Join(dir, "i.txt")
	require.NoError(t, os.WriteFile(lengths, text("1\n0\n2\n"), 0o644))
	require.NoError(t, os.WriteFile(ids, text("a\nb\nc\n"), 0o644))
	for i, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		values := []float32{1, 2, 3, 4, 5, v}
		path := filepath.Join(dir, "docs.npy")
		require.NoError(t, os.WriteFile(path, npyBytes(t, []string{"<f2", "<f4", ">f8"}[i], []int{3, 2}, values...), 0o644))
		s := open(t, Files{Vectors: path, Lengths: lengths, IDs: ids})
		docs, err := collect(s, 0, 3)
		require.Len(t, docs, 2, "what comes before is yielded")
		require.EqualError(t, err, fmt.Sprintf(`%s: document 2 (id "c"), token 1, component 1: value is not finite: %v`, path, v))
		require.ErrorIs(t, err, ErrValue)
		var fe *FileError
		require.ErrorAs(t, err, &fe)
		require.Equal(t, [4]int{2, 1, 1, -1}, [4]int{fe.Doc, fe.Token, fe.Dim, fe.Line})

		m, err := FromDocuments(2, []Document{{ID: "x", Tokens: values}})
		require.NoError(t, err)
		_, err = collect(m, 0, 1)
		require.ErrorIs(t, err, ErrValue)
		require.ErrorContains(t, err, `document 0 (id "x"), token 2, component 1`)
	}
	// float64 beyond float32 is not finite either.
	b := rawNPY("{'descr':'<f8','fortran_order':False,'shape':(1,1,1)}", []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7e})
	s := open(t, Files{Vectors: tempFile(t, "big.npy", b)})
	_, err := collect(s, 0, 1)
	require.ErrorIs(t, err, ErrValue)
	// Nothing is, where it is masked or padding.
	pad := npyBytes(t, "<f4", []int{1, 3, 1}, float32(math.NaN()), 7, float32(math.Inf(1)))
	path := tempFile(t, "pad.npy", pad)
	mask := tempFile(t, "mask.npy", npyInts(t, "<i8", []int{1, 3}, 0, -5, 0))
	docs := all(t, open(t, Files{Vectors: path, Mask: mask}))
	require.Equal(t, []float32{7}, docs[0].Tokens)
	_, err = collect(open(t, Files{Vectors: path, Lengths: tempFile(t, "l.json", text("[2]"))}), 0, 1)
	require.ErrorContains(t, err, "token 0, component 0: value is not finite: NaN")
}

// Few documents, none, and documents of nothing are all legal.
func TestSmallCollections(t *testing.T) {
	zero := tempFile(t, "zero.txt", nil)
	for name, f := range map[string]Files{
		"ragged": {Vectors: tempFile(t, "d.npy", npyBytes(t, "<f4", []int{0, 4})), Lengths: zero, IDs: zero, Payload: tempFile(t, "p.jsonl", nil)},
		"padded": {Vectors: tempFile(t, "d.npy", npyBytes(t, "<f4", []int{0, 7, 4}))},
		"none":   {Vectors: tempFile(t, "d.npy", npyBytes(t, "<f4", []int{0, 0, 0})), Mask: tempFile(t, "m.npy", npyInts(t, "|b1", []int{0, 0}))},
		"jsonl":  {Vectors: tempFile(t, "d.jsonl", nil), IDs: zero},
	} {
		s := open(t, f)
		require.Zero(t, s.Len(), name)
		require.Zero(t, s.Dim(), name)
		require.Empty(t, all(t, s), name)
	}
	for name, f := range map[string]Files{
		"ragged":  {Vectors: tempFile(t, "d.npy", npyBytes(t, "<f4", []int{0, 4})), Lengths: tempFile(t, "l.txt", text("0\n0\n0"))},
		"padded":  {Vectors: tempFile(t, "d.npy", npyBytes(t, "<f4", []int{3, 0, 4}))},
		"masked":  {Vectors: tempFile(t, "d.npy", npyBytes(t, "<f4", []int{3, 1, 2}, nans(6)...)), Mask: tempFile(t, "m.npy", npyInts(t, "|b1", []int{3, 1}, 0, 0, 0))},
		"lengths": {Vectors: tempFile(t, "d.npy", npyBytes(t, "<f4", []int{3, 1, 2}, nans(6)...)), Lengths: tempFile(t, "l.json", text("[0,0,0]"))},
		"jsonl":   {Vectors: tempFile(t, "d.jsonl", text(strings.Repeat(`{"vectors":[]}`+"\n", 3)))},
	} {
		s := open(t, f)
		require.Zero(t, s.Dim(), name)
		docs := all(t, s)
		require.Len(t, docs, 3, name)
		for i, d := range docs {
			require.Empty(t, d.Tokens, name)
			require.Equal(t, fmt.Sprint(i), d.ID, name)
		}
	}
	one := open(t, Files{Vectors: tempFile(t, "D.NPY", npyBytes(t, "<f4", []int{1, 1, 1}, 5))})
	require.Equal(t, []Document{{ID: "0", Tokens: []float32{5}}}, all(t, one))
}

func TestIDFiles(t *testing.T) {
	docs := tempFile(t, "d.npy", npyBytes(t, "<f4", []int{2, 1, 1}, 1, 2))
	for name, content := range map[string]string{
		"a.txt":  "x y\n00\n",
		"b.txt":  "\ufeffx y\r\n00",
		"c.ids":  "x y\n00",
		"d.json": ` [ "x\u0020y", "00" ] `,
	} {
		s := open(t, Files{Vectors: docs, IDs: tempFile(t, name, text(content))})
		require.Equal(t, []string{"x y", "00"}, []string{s.ID(0), s.ID(1)}, name)
	}
	s := open(t, Files{Vectors: docs, IDs: tempFile(t, "i.npy", npyInts(t, ">i8", []int{2}, -3, 1<<40))})
	require.Equal(t, []string{"-3", "1099511627776"}, []string{s.ID(0), s.ID(1)})
	longest := strings.Repeat("é", MaxIDBytes/2)
	s = open(t, Files{Vectors: docs, IDs: tempFile(t, "i.txt", text("a\n"+longest+"\r\n"))})
	require.Equal(t, longest, s.ID(1))
	// Ids from a file take the place of those in the lines, even of bad ones.
	jsonl := tempFile(t, "d.jsonl", text(`{"id":"a","vectors":[]}`+"\n"+`{"id":null,"vectors":[]}`))
	s = open(t, Files{Vectors: jsonl, IDs: tempFile(t, "i.txt", text("p\nq"))})
	require.Equal(t, []string{"p", "q"}, []string{s.ID(0), s.ID(1)})
}

func TestPayloads(t *testing.T) {
	docs := tempFile(t, "d.npy", npyBytes(t, "<f4", []int{3, 1, 1}, 1, 2, 3))
	ids := tempFile(t, "i.txt", text("a\n7\nc"))
	corpus := tempFile(t, "corpus.jsonl", text("\ufeff"+`{"_id": 7, "text": "seven"}`+"\r\n\r\n"+
		`{"_id":"other","text":""}`+"\n"+`  {"id":"a","title":"\u0041"}  `+"\n"))
	got := all(t, open(t, Files{Vectors: docs, IDs: ids, Payload: corpus}))
	require.Equal(t, `{"id":"a","title":"\u0041"}`, string(got[0].Payload))
	require.Equal(t, `{"_id": 7, "text": "seven"}`, string(got[1].Payload))
	require.Nil(t, got[2].Payload)
	// Without ids the order counts.
	ordered := tempFile(t, "corpus.jsonl", text(`{"_id": 0, "text": "zero"}`+"\n"+`{"text":""}`+"\n"+`{"id":"a"}`))
	got = all(t, open(t, Files{Vectors: docs, Payload: ordered}))
	require.Equal(t, `{"_id": 0, "text": "zero"}`, string(got[0].Payload))
	require.Equal(t, `{"id":"a"}`, string(got[2].Payload))
	// What matches nothing is told.
	told := []string{}
	notice := func(text string) { told = append(told, text) }
	open(t, Files{Vectors: docs, IDs: ids, Payload: corpus, Notice: notice})
	more := tempFile(t, "more.jsonl", text(`{"id":"x"}`+"\n"+`{"id":"a"}`+"\n"+`{"id":"z"}`))
	open(t, Files{Vectors: docs, IDs: ids, Payload: more, Notice: notice})
	whole := tempFile(t, "whole.jsonl", text(`{"id":"c"}`+"\n"+`{"id":"a"}`+"\n"+`{"id":"7"}`))
	open(t, Files{Vectors: docs, IDs: ids, Payload: whole, Notice: notice})
	require.Equal(t, []string{
		corpus + ` has objects for 2 of 3 documents; line 3 (id "other") is of none`,
		more + ` has objects for 1 of 3 documents; 2 lines are of none (the first is line 1, id "x")`,
	}, told)
	// A file of payloads takes the place of the fields of lines.
	lines := tempFile(t, "d.jsonl", text(`{"id":"a","vectors":[[1]],"x":1}`+"\n"+`{"id":"c","vectors":[[2]],"x":2}`))
	got = all(t, open(t, Files{Vectors: lines, Payload: corpus}))
	require.Equal(t, `{"id":"a","title":"\u0041"}`, string(got[0].Payload))
	require.Nil(t, got[1].Payload)
}

func TestConcat(t *testing.T) {
	a := tempFile(t, "a.npy", npyBytes(t, "<f4", []int{2, 1, 2}, 1, 2, 3, 4))
	b := tempFile(t, "b.npy", npyBytes(t, "<f2", []int{1, 2, 2}, 5, 6, 7, 8))
	c := tempFile(t, "c.npy", npyBytes(t, "<f4", []int{1, 1, 3}, 1, 2, 3))
	none := tempFile(t, "none.npy", npyBytes(t, "<f4", []int{1, 0, 9}))
	s, err := Concat(open(t, Files{Vectors: none}), open(t, Files{Vectors: a}), open(t, Files{Vectors: b}))
	require.NoError(t, err)
	require.Equal(t, 2, s.Dim())
	docs := all(t, s)
	require.Equal(t, []Document{{ID: "0"}, {ID: "1", Tokens: []float32{1, 2}}, {ID: "2", Tokens: []float32{3, 4}},
		{ID: "3", Tokens: []float32{5, 6, 7, 8}}}, normal(docs))
	part, err := collect(s, 2, 4)
	require.NoError(t, err)
	require.Equal(t, docs[2:], part)
	require.NoError(t, s.Close())
	_, err = collect(s, 0, 4)
	require.Error(t, err)

	_, err = Concat(open(t, Files{Vectors: a}), open(t, Files{Vectors: none}), open(t, Files{Vectors: c}))
	require.ErrorIs(t, err, ErrShape)
	require.ErrorContains(t, err, c+": ")
	require.ErrorContains(t, err, "dimension 3, "+a+" has 2")

	ids := tempFile(t, "i.txt", text("x\ny"))
	_, err = Concat(open(t, Files{Vectors: a, IDs: ids}), open(t, Files{Vectors: b, IDs: tempFile(t, "j.txt", text("y"))}))
	require.ErrorIs(t, err, ErrID)
	require.ErrorContains(t, err, b+": document 0: ")
	require.ErrorContains(t, err, `"y" is also the id of document 1 of `+a)
	_, err = Concat(open(t, Files{Vectors: a, IDs: ids}), open(t, Files{Vectors: b}))
	require.ErrorIs(t, err, ErrID)
	require.ErrorContains(t, err, "has no ids")

	s, err = Concat()
	require.NoError(t, err)
	require.Zero(t, s.Len())
	require.Empty(t, all(t, s))
	require.NoError(t, s.Close())
}

func TestFromDocuments(t *testing.T) {
	s, err := FromDocuments(2, []Document{{Tokens: []float32{1, 2}}, {}})
	require.NoError(t, err)
	require.Equal(t, "1", s.ID(1))
	require.Len(t, all(t, s), 2)
	s, err = FromDocuments(2, []Document{{ID: "a"}})
	require.NoError(t, err)
	require.Zero(t, s.Dim())
	for reason, c := range map[string]struct {
		dim  int
		docs []Document
		want error
	}{
		"document 1 (id \"b\"): ":   {2, []Document{{ID: "a"}, {ID: "b", Tokens: []float32{1}}}, ErrShape},
		"document 1: bad id":        {2, []Document{{ID: "a"}, {}}, ErrID},
		"document 0 and document 1": {2, []Document{{ID: "a"}, {ID: "a"}}, ErrID},
		"control character":         {2, []Document{{ID: "a\x00"}}, ErrID},
		"dimension 0":               {0, []Document{{ID: "a", Tokens: []float32{1}}}, ErrShape},
		"dimension -1":              {-1, nil, ErrShape},
		"dimension 4097":            {4097, nil, ErrShape},
	} {
		_, err := FromDocuments(c.dim, c.docs)
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, reason)
	}
}
