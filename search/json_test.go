package search

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/kernels"
)

// The names and forms that docs/formats.md promises.
func TestJSONForms(t *testing.T) {
	for want, v := range map[string]any{
		`{"vectors":[[1,0.5],[0,-1]],"mask":[true,false],"weights":[1,2]}`: Query{Vectors: []float32{1, 0.5, 0, -1}, Dim: 2, Mask: []bool{true, false}, Weights: []float32{1, 2}},
		`{"vectors":[1,0.5]}`:           Query{Vectors: []float32{1, 0.5}},
		`{"vectors":[1,0.5,2],"dim":2}`: Query{Vectors: []float32{1, 0.5, 2}, Dim: 2},
		`{"vectors":[],"mask":[]}`:      Query{Vectors: []float32{}, Mask: []bool{}},
		`{}`:                            Query{},
		`{"k":5,"mode":"exhaustive"}`:   Options{K: 5, Mode: Exhaustive},
		`{"mode":"candidates","candidates":[],"allow_missing":true}`:      Options{Mode: Candidates, Candidates: []string{}, AllowMissing: true},
		`{"probes":1,"approx":2,"exact":3,"derive":true,"metadata":true}`: Options{Probes: 1, Approx: 2, Exact: 3, Derive: true, Payload: true},
		`{"filter":{"ids":["a"],"allow_missing":true}}`:                   Options{Filter: &Filter{IDs: []string{"a"}, AllowMissing: true}},
		`{"filter":{"ids":[]}}`:                                           Options{Filter: &Filter{IDs: []string{}}},
		`{"id":"a","ordinal":3,"score":0.1}`:                              Hit{ID: "a", Ordinal: 3, Score: 0.1},
		`{"id":"a","ordinal":3,"score":1,"metadata":{"n":1}}`:             Hit{ID: "a", Ordinal: 3, Score: 1, Payload: Payload(`{"n":1}`)},
		`{"id":"","ordinal":0,"score":0,"metadata":"text"}`:               Hit{Payload: Payload("text")},
		`{"id":"","ordinal":0,"score":0,"metadata":""}`:                   Hit{Payload: Payload{}},
		`{"id":"","ordinal":0,"score":0,"metadata":{"base64":"/w=="}}`:    Hit{Payload: Payload{255}},
		`{"id":"","ordinal":0,"score":0,"metadata":"\"JSON text\""}`:      Hit{Payload: Payload(`"JSON text"`)},
		`{"id":"","ordinal":0,"score":0,"metadata":"{\"base64\":\"\"}"}`:  Hit{Payload: Payload(`{"base64":""}`)},
		`{"id":"","ordinal":0,"score":0,"metadata":"null"}`:               Hit{Payload: Payload(`null`)},
	} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
		switch v := v.(type) {
		case Query:
			requireRead(t, text, v)
		case Options:
			requireRead(t, text, v)
		case Hit:
			requireRead(t, text, v)
		}
	}
	res := Result{Hits: []Hit{{ID: "a", Score: 2, Payload: Payload("1")}}, Stats: Stats{Queries: 1, Plans: map[string]int{"scan": 1}, Times: Times{Wait: 1, Total: 2}, Device: &kernels.DeviceStats{Device: "x"}}}
	text, err := json.Marshal(res)
	require.NoError(t, err)
	requireRead(t, text, res)
	d := Description{Docs: 1, Lineage: math.MaxUint64, Device: "x", Memory: &kernels.MemoryPlan{Tokens: 3}}
	text, err = json.Marshal(d)
	require.NoError(t, err)
	require.Contains(t, string(text), `"lineage":"18446744073709551615"`)
	requireRead(t, text, d)
}

func requireRead[T any](t require.TestingT, text []byte, want T) {
	var got T
	require.NoError(t, json.Unmarshal(text, &got), "%s", text)
	require.Equal(t, want, got, "%s", text)
}

func TestBadJSON(t *testing.T) {
	for _, text := range []string{
		`{"vectors":[[1,2],[3]]}`, `{"vectors":[[]]}`, `{"vectors":[[1],null]}`, `{"vectors":[1,null]}`, `{"vectors":[[null]]}`, `{"vectors":[1e39]}`, `{"vectors":["a"]}`,
		`{"vectors":[[[1]]]}`, `{"vectors":"AAAA"}`, `{"vectors":[[1,2]],"dim":3}`, `{"vectors":[1],"dim":-1}`, `{"vectors":[1],"weights":[null]}`, `{"vectors":[1],"mask":[null]}`,
		`{"vectors":[1],"mask":[1]}`, `{"vectors":[1],"filters":{"ids":[]}}`, `{"vectors":[1],"filter":{"id":[]}}`, `[]`, `3`,
	} {
		var q Query
		require.ErrorIs(t, json.Unmarshal([]byte(text), &q), ErrQuery, text)
		require.Zero(t, q)
	}
	var o Options
	require.ErrorIs(t, json.Unmarshal([]byte(`{"mode":"fast"}`), &o), ErrOption)
	var p Payload
	require.ErrorContains(t, json.Unmarshal([]byte(`{"base64":"?"}`), &p), "metadata")
	for _, q := range []Query{{Vectors: []float32{nan}}, {Vectors: []float32{inf}, Dim: 1}, {Vectors: []float32{1}, Weights: []float32{nan}}} {
		_, err := json.Marshal(q)
		require.ErrorIs(t, err, ErrQuery)
	}
	_, err := json.Marshal(Options{Mode: 9})
	require.ErrorIs(t, err, ErrOption)
}

// What is written is read as it was.
func TestJSONProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, dim := rapid.IntRange(0, 4).Draw(t, "tokens"), rapid.IntRange(1, 4).Draw(t, "dim")
		q := Query{Vectors: rapid.SliceOfN(rapid.Float32(), n*dim, n*dim).Draw(t, "vectors")}
		if rapid.Bool().Draw(t, "with dim") {
			q.Dim = dim
		}
		if rapid.Bool().Draw(t, "with mask") {
			q.Mask = rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "mask")
			q.Weights = rapid.SliceOfN(rapid.Float32(), n, n).Draw(t, "weights")
		}
		text, err := json.Marshal(q)
		require.NoError(t, err)
		requireRead(t, text, q)
		h := Hit{ID: rapid.String().Draw(t, "id"), Score: rapid.Float32().Draw(t, "score"), Payload: rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
			rapid.Map(rapid.String(), func(s string) []byte { text, _ := json.Marshal(s); return text }),
			rapid.Map(rapid.String(), func(s string) []byte { text, _ := json.Marshal(map[string]string{"base64": s}); return text }),
			rapid.SampledFrom([][]byte{[]byte(`{"a":[1,{"base64":"x"}],"base64":1}`), []byte("null"), []byte("true"), []byte("12"), []byte(`[]`)}),
		).Draw(t, "payload")}
		text, err = json.Marshal(h)
		require.NoError(t, err)
		if json.Valid(h.Payload) && standsForItself(h.Payload) { // white space in JSON may go
			var b bytes.Buffer
			require.NoError(t, json.Compact(&b, h.Payload))
			h.Payload = b.Bytes()
		}
		requireRead(t, text, h)
	})
}

func FuzzQueryJSON(f *testing.F) {
	f.Add([]byte(`{"vectors":[[1,2],[3,4]],"mask":[true,false],"weights":[1,0.5]}`))
	f.Add([]byte(`{"vectors":[1,2,3],"dim":2}`))
	f.Add([]byte(`{"vectors":[[],[1]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var q Query
		if json.Unmarshal(text, &q) != nil {
			return
		}
		again, err := json.Marshal(q)
		require.NoError(t, err)
		requireRead(t, again, q)
	})
}

func FuzzPayloadJSON(f *testing.F) {
	f.Add([]byte(`{"title":"x"}`))
	f.Add([]byte(`{"base64":"AA=="}`))
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p Payload
		if json.Valid(text) && p.UnmarshalJSON(text) == nil { // and nothing panics
			again, err := json.Marshal(p)
			require.NoError(t, err)
			var back Payload
			require.NoError(t, json.Unmarshal(again, &back))
			if !json.Valid(p) {
				require.Equal(t, p, back)
			}
		}
		written, err := json.Marshal(Payload(text))
		require.NoError(t, err)
		var back Payload
		require.NoError(t, json.Unmarshal(written, &back))
		if !json.Valid(text) {
			require.Equal(t, Payload(text), back)
		}
	})
}
