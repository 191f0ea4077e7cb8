package vectors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// readJSONL opens a file of lines and reads it all; the first error of either.
func readJSONL(text string) ([]Document, error) {
	s, err := newJSONL(context.Background(), strings.NewReader(text), int64(len(text)), "x.jsonl", true)
	if err != nil {
		return nil, err
	}
	return collect(s, 0, s.Len())
}

func TestJSONL(t *testing.T) {
	text := "\ufeff" + `{"id": "a", "vectors": [[1, 2.5], [-0.125e1, 0]], "text": "x \u0041", "n": {"k": [1, "]"]}}` + "\r\n" +
		"\n  \r\n" +
		`{"vectors":[],"_id":7}` + "\n" +
		` { "title" : "t" , "v\u0065ctors" : [ [ 1E2 , 2 ] ] , "id" : "b" } `
	s := open(t, Files{Vectors: tempFile(t, "x.jsonl", []byte(text))})
	require.Equal(t, 2, s.Dim())
	require.Equal(t, []Document{
		{ID: "a", Tokens: []float32{1, 2.5, -1.25, 0}, Payload: []byte(`{"id":"a","text":"x \u0041","n":{"k": [1, "]"]}}`)},
		{ID: "7"},
		{ID: "b", Tokens: []float32{100, 2}, Payload: []byte(`{"title":"t","id":"b"}`)},
	}, normal(all(t, s)))

	docs, err := readJSONL(`{"vectors":[[1]]}` + "\n" + `{"vectors":[[2]]}`)
	require.NoError(t, err)
	require.Equal(t, "1", docs[1].ID, "row numbers")
	docs, err = readJSONL(`{"id":1,"_id":"x","vectors":[[1]]}`)
	require.NoError(t, err)
	require.Equal(t, "x", docs[0].ID)
	require.JSONEq(t, `{"id":1,"_id":"x"}`, string(docs[0].Payload))
}

// normal turns empty slices into nil ones.
func normal(docs []Document) []Document {
	for i := range docs {
		if len(docs[i].Tokens) == 0 {
			docs[i].Tokens = nil
		}
		if len(docs[i].Payload) == 0 {
			docs[i].Payload = nil
		}
	}
	return docs
}

func TestBadJSONL(t *testing.T) {
	ok := `{"id":"ok","vectors":[[1,2]]}` + "\n"
	line := func(s string) string { return ok + `{"id":"d",` + s + "}\n" }
	for _, c := range []struct {
		text   string
		want   error
		reason string
	}{
		{ok + `{"id":"d"}`, ErrFormat, "no vectors"},
		{ok + `[]`, ErrFormat, "want a JSON object"},
		{ok + `x`, ErrFormat, "want a JSON object"},
		{ok + `{`, ErrFormat, "without an end"},
		{ok + `{"id":"d","vectors":[[1,2]]`, ErrFormat, "without an end"},
		{ok + `{"id":"d","vectors":[[1,2]]} x`, ErrFormat, "text after"},
		{ok + `{"id":"d","vectors":[[1,2]],}`, ErrFormat, "quoted name"},
		{ok + `{"id":"d" "vectors":[[1,2]]}`, ErrFormat, "comma or a brace"},
		{ok + `{"id" "d"}`, ErrFormat, "colon"},
		{ok + `{"id":}`, ErrFormat, "malformed value"},
		{ok + `{id:"d"}`, ErrFormat, "quoted name"},
		{ok + "{\"i\x01d\":3}", ErrFormat, "malformed name"},
		{line(`"vectors":[[1,2]],"x":[1}`), ErrFormat, `field "\"x\""`},
		{line(`"vectors":[[1,2]],"x":tru`), ErrFormat, "malformed value"},
		{line(`"vectors":[[1,2]],"vectors":[]`), ErrFormat, "vectors (or embeddings) twice"},
		{line(`"vectors":null`), ErrFormat, `not "null"`},
		{line(`"vectors":{}`), ErrFormat, "array of arrays"},
		{line(`"vectors":[1,2]`), ErrFormat, "token 0: malformed"},
		{line(`"vectors":[[1,2],3]`), ErrFormat, "token 1: malformed"},
		{line(`"vectors":[[1,2] [1,2]]`), ErrFormat, "token 1: malformed"},
		{line(`"vectors":[[1,2],]`), ErrFormat, "token 1: malformed"},
		{line(`"vectors":[[1,2`), ErrFormat, "without an end"},
		{line(`"vectors":[[1,2]`), ErrFormat, "comma or a bracket"},
		{line(`"vectors":[[[1,2]]]`), ErrFormat, "token 0: malformed: vectors: arrays are nested too deep"},
		{line(`"vectors":[[1,"2"]]`), ErrFormat, "token 0, component 1"},
		{line(`"vectors":[[1,2],[3,null]]`), ErrFormat, `token 1, component 1: malformed: "null" is not a number`},
		{line(`"vectors":[[1,]]`), ErrFormat, "component 1"},
		{line(`"vectors":[[1,2 3]]`), ErrFormat, "want a comma"},
		{line(`"vectors":[[1,01]]`), ErrFormat, "is not a number"},
		{line(`"vectors":[[1,.5]]`), ErrFormat, "is not a number"},
		{line(`"vectors":[[1,5.]]`), ErrFormat, "is not a number"},
		{line(`"vectors":[[1,1e]]`), ErrFormat, "is not a number"},
		{line(`"vectors":[[1,+1]]`), ErrFormat, "is not a number"},
		{line(`"vectors":[[1,0x10]]`), ErrFormat, "component 1"},
		{line(`"vectors":[[1,1_0]]`), ErrFormat, "component 1"},
		{line(`"vectors":[[1,nan]]`), ErrFormat, "component 1"},
		{line(`"vectors":[[1,NaN]]`), ErrValue, `component 1: value is not finite: "NaN"`},
		{line(`"vectors":[[-Infinity,2]]`), ErrValue, "component 0"},
		{line(`"vectors":[[1,2],[1e39,2]]`), ErrValue, `token 1, component 0: value is not finite: "1e39" does not fit float32`},
		{line(`"vectors":[[1,2],[1,2,3]]`), ErrShape, "token 1: shapes do not match: dimension 3, vectors before it have 2"},
		{line(`"vectors":[[]]`), ErrShape, "dimension 0"},
		{line(`"vectors":[[` + strings.Repeat("1,", 4096) + `1]]`), ErrShape, "dimension 4097"},
		{ok + `{"id":"ok","vectors":[]}`, ErrID, "line 1 and line 2"},
		{ok + `{"vectors":[]}`, ErrID, "no id, lines before it have one"},
		{`{"vectors":[]}` + "\n" + `{"id":"d","vectors":[]}`, ErrID, "lines before it have none"},
		{ok + `{"id":"","vectors":[]}`, ErrID, "empty"},
		{ok + `{"id":null,"vectors":[]}`, ErrID, "neither"},
		{ok + `{"id":1.5,"vectors":[]}`, ErrID, "neither"},
		{ok + `{"id":1e3,"vectors":[]}`, ErrID, "neither"},
		{ok + `{"id":["d"],"vectors":[]}`, ErrID, "neither"},
		{ok + `{"id":"a\nb","vectors":[]}`, ErrID, "control character U+000A"},
		{ok + "{\"id\":\"a\xff\",\"vectors\":[]}", ErrID, "UTF-8"},
		{ok + `{"id":"` + strings.Repeat("x", MaxIDBytes+1) + `","vectors":[]}`, ErrID, "at most 4096"},
		{ok + `{"id":"\udbff","vectors":[]}`, ErrID, "surrogate"},
		{ok + "{\"id\":\"d\",\"vectors\":[],\"x\":\"\xff\"}", ErrFormat, "is not UTF-8"},
		{ok + `{"id":"d","vectors":[],"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}", ErrFormat, "malformed value"},
	} {
		_, err := readJSONL(c.text)
		require.ErrorIs(t, err, c.want, c.text)
		require.ErrorContains(t, err, "x.jsonl: line 2, document 1", c.text)
		require.ErrorContains(t, err, c.reason, c.text)
		require.Less(t, len(err.Error()), 300, "long input is not repeated")
	}
}

// Long lines are read whole: 20,000 tokens of 16, some 3 MB.
func TestLongLine(t *testing.T) {
	const tokens, dim = 20_000, 16
	doc := Document{ID: "long", Tokens: make([]float32, tokens*dim)}
	for i := range doc.Tokens {
		doc.Tokens[i] = float32(math.Sin(float64(i)))
	}
	text := jsonLines(dim, Document{ID: "short", Tokens: make([]float32, dim)}, doc)
	require.Greater(t, len(text), 3<<20)
	docs, err := readJSONL(text)
	require.NoError(t, err)
	require.Equal(t, doc, normal(docs)[1])
}

// Lines are held against what was noted even where no file tells.
func TestJSONLChangedUnderneath(t *testing.T) {
	for text, reason := range map[string]string{
		`{"id":"a","vectors":[[1,  2]]}`: "other vectors", `{"id":"b","vectors":[[1],[2]]}`: "another id",
	} {
		line := []byte(`{"id":"a","vectors":[[1],[2]]}`)
		s, err := newJSONL(context.Background(), bytes.NewReader(line), int64(len(line)), "x.jsonl", true)
		require.NoError(t, err)
		copy(line, text)
		_, err = collect(s, 0, 1)
		require.ErrorIs(t, err, ErrChanged)
		require.ErrorContains(t, err, reason)
	}
}

// jsonLines are documents whose payloads are objects, if they have any.
func jsonLines(dim int, docs ...Document) string {
	var b strings.Builder
	for _, d := range docs {
		line := map[string]any{}
		if len(d.Payload) > 0 {
			if err := json.Unmarshal(d.Payload, &line); err != nil {
				panic(err)
			}
		}
		line["id"], line["vectors"] = d.ID, slices.AppendSeq([][]float32{}, slices.Chunk(d.Tokens, dim))
		b.WriteString(jsonText(line) + "\n")
	}
	return b.String()
}

// drawDocs makes a ragged collection with distinct ids.
func drawDocs(t *rapid.T) (dim int, docs []Document) {
	dim = rapid.IntRange(1, 6).Draw(t, "dim")
	finite := rapid.Float32().Filter(func(v float32) bool { return !math.IsInf(float64(v), 0) && v == v })
	id := rapid.String().Filter(func(s string) bool { return CheckID(s) == nil })
	for _, id := range rapid.SliceOfNDistinct(id, 0, 6, rapid.ID).Draw(t, "ids") {
		n := rapid.IntRange(0, 5).Draw(t, "tokens")
		doc := Document{ID: id, Tokens: rapid.SliceOfN(finite, n*dim, n*dim).Draw(t, "values")}
		if rapid.Bool().Draw(t, "has payload") {
			doc.Payload = []byte(jsonText(map[string]any{"id": id, "text": rapid.String().Draw(t, "text")}))
		}
		docs = append(docs, doc)
	}
	return dim, normal(docs)
}

func TestJSONLRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim, docs := drawDocs(t)
		got, err := readJSONL(jsonLines(dim, docs...))
		require.NoError(t, err)
		require.Equal(t, docs, normal(got))
	})
}

// The same collection as [tokens, dim] with lengths, as [docs, rows, dim] with
// lengths and with a mask, in .npy and .npz, and in memory, reads alike.
func TestArrayRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dim, docs := drawDocs(t)
		rows := 0
		for _, d := range docs {
			rows = max(rows, len(d.Tokens)/dim)
		}
		var ragged, padded, spread []float32
		var lengths, mask []int64
		var ids, payloads strings.Builder
		for _, d := range docs {
			n := len(d.Tokens) / dim
			ragged = append(ragged, d.Tokens...)
			padded = append(append(padded, d.Tokens...), nans((rows-n)*dim)...)
			spread = append(append(spread, nans((rows-n)*dim)...), d.Tokens...)
			lengths = append(lengths, int64(n))
			for r := range rows {
				mask = append(mask, map[bool]int64{true: 1}[r >= rows-n])
			}
			fmt.Fprintf(&ids, "%s\n", d.ID)
			if d.Payload != nil {
				fmt.Fprintf(&payloads, "%s\n", d.Payload)
			}
		}
		save := func(name string, b []byte) string {
			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, b, 0o644))
			return path
		}
		npy := func(shape []int, v []float32) []byte {
			var b bytes.Buffer
			require.NoError(t, WriteNPY(&b, "<f4", shape, v))
			return b.Bytes()
		}
		ints := func(shape []int, v []int64) []byte {
			var b bytes.Buffer
			require.NoError(t, WriteNPYInts(&b, "|u1", shape, v))
			return b.Bytes()
		}
		flat, deep := []int{len(ragged) / dim, dim}, []int{len(docs), rows, dim}
		lengthsNPY := save("lengths.npy", ints([]int{len(docs)}, lengths))
		padNPY := save("padded.npy", npy(deep, padded))
		for _, f := range []Files{
			{Vectors: save("ragged.npy", npy(flat, ragged)), Lengths: lengthsNPY},
			{Vectors: padNPY, Lengths: save("lengths.json", []byte(jsonText(append([]int64{}, lengths...))))},
			{Vectors: save("spread.npy", npy(deep, spread)), Mask: save("mask.npy", ints([]int{len(docs), rows}, mask))},
		} {
			f.IDs = save("ids.txt", []byte(strings.ReplaceAll(ids.String(), "\n", rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "eol"))))
			f.Payload = save("metadata.jsonl", []byte(payloads.String()))
			s, err := Open(context.Background(), f)
			require.NoError(t, err)
			got, err := collect(s, 0, s.Len())
			require.NoError(t, err)
			require.Equal(t, docs, normal(got))
			for i := range docs {
				require.Equal(t, int(lengths[i]), s.Rows(i))
			}
			from := rapid.IntRange(0, len(docs)).Draw(t, "from")
			to := rapid.IntRange(from, len(docs)).Draw(t, "to")
			got, err = collect(s, from, to)
			require.NoError(t, err)
			require.Equal(t, append([]Document(nil), docs[from:to]...), normal(got))
			require.NoError(t, s.Close())
		}
		s, err := FromDocuments(dim, docs)
		require.NoError(t, err)
		cut := rapid.IntRange(0, len(docs)).Draw(t, "cut")
		a, err := FromDocuments(dim, docs[:cut])
		require.NoError(t, err)
		b, err := FromDocuments(dim, docs[cut:])
		require.NoError(t, err)
		joined, err := Concat(a, b)
		require.NoError(t, err)
		for _, s := range []Source{s, joined} {
			got, err := collect(s, 0, s.Len())
			require.NoError(t, err)
			require.Equal(t, docs, normal(got))
		}
	})
}

// nans is padding that must never be looked at.
func nans(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return v
}

func TestCancel(t *testing.T) {
	jsonl := tempFile(t, "x.jsonl", []byte(strings.Repeat(`{"vectors":[[1]]}`+"\n", 10)))
	npy := tempFile(t, "x.npy", npyBytes(t, "<f4", []int{10, 1, 1}, make([]float32, 10)...))
	memory, err := FromDocuments(1, make([]Document, 10))
	require.NoError(t, err)
	joined, err := Concat(memory, memory)
	require.NoError(t, err)
	for _, s := range []Source{open(t, Files{Vectors: jsonl}), open(t, Files{Vectors: npy}), memory, joined} {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		n := 0
		var last error
		for _, err := range s.Docs(ctx, 0, s.Len()) {
			if last = err; err == nil {
				n++
			}
			if n == 3 {
				cancel()
			}
		}
		require.ErrorIs(t, last, context.Canceled)
		require.Equal(t, 3, n)
		for _, r := range [][2]int{{-1, 2}, {0, s.Len() + 1}, {2, 1}} {
			_, err := collect(s, r[0], r[1])
			require.ErrorIs(t, err, ErrShape)
		}
		// A loop inside a loop does not disturb the outer one.
		for outer, err := range s.Docs(context.Background(), 0, 2) {
			require.NoError(t, err)
			before := append([]float32(nil), outer.Tokens...)
			_, err = collect(s, 3, 5)
			require.NoError(t, err)
			require.Equal(t, before, append([]float32(nil), outer.Tokens...))
		}
		var fe *FileError
		_, err := collect(s, 0, 99)
		require.True(t, errors.As(err, &fe))
	}
}
