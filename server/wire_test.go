package server_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/server"
)

// Vectors come through both forms as they were, to the bit.
func TestMatrixRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim, tokens := rapid.IntRange(1, 9).Draw(t, "dim"), rapid.IntRange(1, 9).Draw(t, "tokens")
		rows := make([][]float32, tokens)
		var raw []byte
		for i := range rows {
			rows[i] = make([]float32, dim)
			for j := range rows[i] {
				rows[i][j] = rapid.Float32().Draw(t, "x")
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(rows[i][j]))
			}
		}
		nested, err := json.Marshal(object{"embeddings": rows})
		require.NoError(t, err)
		b64, err := json.Marshal(object{"embeddings_b64": base64.StdEncoding.EncodeToString(raw), "shape": []int{tokens, dim}})
		require.NoError(t, err)
		for _, text := range [][]byte{nested, b64} {
			m, err := server.ReadMatrix(text)
			require.NoError(t, err)
			require.Equal(t, []int{tokens, dim}, []int{m.Tokens, m.Dim})
			for i := range rows {
				for j := range rows[i] {
					require.Equal(t, math.Float32bits(rows[i][j]), math.Float32bits(m.Data[i*dim+j]))
				}
			}
			again, err := server.ReadMatrix(server.WriteMatrix(m))
			require.NoError(t, err)
			require.Equal(t, m, again)
		}
	})
}

// The reader of vectors takes what encoding/json takes, and nothing else.
func FuzzMatrix(f *testing.F) {
	for _, s := range []string{
		`{"embeddings": [[1, 2.5e-3], [ -0, 1E5 ]]}`, `{"embeddings": [[1],[2,3]]}`, `{"embeddings": [[]]}`, `{"embeddings": []}`, `{"embeddings": null}`,
		`{"embeddings": [[null]]}`, `{"embeddings": [[[1]]]}`, `{"embeddings": {"a": 1}}`, `{"embeddings": [[1e99]]}`, `{"embeddings": [["1"]]}`, `{"embeddings":[[true]]}`,
		`{"embeddings_b64": "AACAPw==", "shape": [1, 1]}`, `{"embeddings_b64": "AACAPw==", "shape": [1, 9223372036854775807]}`, `{"embeddings_b64": "AAC\/Pw==", "shape": [1,1]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := server.ReadMatrix(text)
		if err == nil && (m.Tokens < 1 || m.Dim < 1 || len(m.Data) != m.Tokens*m.Dim) {
			t.Fatalf("%d tokens of dimension %d have %d values", m.Tokens, m.Dim, len(m.Data))
		}
		var plain struct {
			Embeddings [][]*float32 `json:"embeddings"`
			Base64     any          `json:"embeddings_b64"`
		}
		if json.Unmarshal(text, &plain) != nil || plain.Base64 != nil {
			return // what encoding/json does not take is covered by the length check
		}
		good := len(plain.Embeddings) > 0
		for _, row := range plain.Embeddings {
			good = good && len(row) > 0 && len(row) == len(plain.Embeddings[0])
			for _, x := range row {
				good = good && x != nil
			}
		}
		if good != (err == nil) {
			t.Fatalf("encoding/json takes it: %v; the reader: %v", good, err)
		}
		for i, row := range plain.Embeddings {
			for j, x := range row {
				if good && *x != m.Data[i*m.Dim+j] {
					t.Fatalf("token %d, component %d: %v, not %v", i, j, m.Data[i*m.Dim+j], *x)
				}
			}
		}
	})
}

// Whatever body comes to whatever route, the answer is JSON as described, and no fault.
func FuzzRequests(f *testing.F) {
	st := openStore(f, nil)
	s, err := server.New(st.Catalog(), words{}, nil)
	require.NoError(f, err)
	svc := &service{Server: s, store: st}
	svc.addPets(f)
	routes := []string{
		"POST /indices", "PUT /indices/pets/config", "POST /indices/pets/update", "POST /indices/pets/update_with_encoding", "DELETE /indices/pets/documents",
		"POST /indices/pets/search", "POST /indices/pets/search_with_encoding", "POST /indices/pets/explain", "POST /indices/pets/recall",
		"POST /indices/pets/metadata/query", "POST /indices/pets/metadata/get", "POST /indices/pets/metadata/check", "POST /encode", "POST /rerank", "POST /v1/embeddings",
	}
	for i := range routes {
		for _, body := range []string{`{}`, `{"queries": [{"embeddings": [[1]]}]}`, `{"condition": "year > ?", "parameters": [[]]}`, `{"documents": [{}], "metadata": [null]}`, `null`, `{"queries": [null]}`, `{"config": null, "name": "x"}`, `{"query": null, "documents": [null]}`, `{"texts": [null], "input_type": "query"}`, `{"input": null}`} {
			f.Add(i, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, i int, body []byte) {
		method, path, _ := strings.Cut(routes[uint(i)%uint(len(routes))], " ")
		r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 || w.Code == 204 {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		var v any
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
		if fields, ok := v.(object); w.Code >= 400 && (!ok || fields["code"] == nil || fields["message"] == nil) {
			t.Fatalf("%s %s: %s", method, path, w.Body)
		}
	})
}

const tensorsMedia = "Content-Type: application/safetensors"

// tensor is one of a safetensors file.
type tensor struct {
	name, dtype string
	shape       []int
	data        []byte
}

// safetensors puts tensors into a file, as the format says.
func safetensors(all ...tensor) []byte {
	header, at := object{}, 0
	var data []byte
	for _, t := range all {
		header[t.name] = object{"dtype": t.dtype, "shape": t.shape, "data_offsets": []int{at, at + len(t.data)}}
		data, at = append(data, t.data...), at+len(t.data)
	}
	text, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, data)
}

func f32Tensor(dim int, values ...float32) tensor {
	t := tensor{"vectors", "F32", []int{len(values) / dim, dim}, nil}
	for _, x := range values {
		t.data = binary.LittleEndian.AppendUint32(t.data, math.Float32bits(x))
	}
	return t
}

func lengthsTensor(lengths ...int) tensor {
	t := tensor{"lengths", "I64", []int{len(lengths)}, nil}
	for _, n := range lengths {
		t.data = binary.LittleEndian.AppendUint64(t.data, uint64(n))
	}
	return t
}

func requestTensor(text string) tensor {
	return tensor{"request", "U8", []int{len(text)}, []byte(text)}
}

// Vectors that come as tensors are stored and searched as those of JSON.
func TestTensorsAndJSONAreTheSame(t *testing.T) {
	s := start(t, nil, nil)
	rapid.Check(t, func(r *rapid.T) {
		dim := rapid.IntRange(1, 5).Draw(r, "dim")
		lengths := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 5).Draw(r, "lengths")
		var values []float32
		var documents, metadata list
		for i, n := range lengths {
			rows := make([][]float32, n)
			for j := range rows {
				for range dim {
					rows[j] = append(rows[j], rapid.Float32Range(-2, 2).Draw(r, "x"))
				}
				values = append(values, rows[j]...)
			}
			documents = append(documents, object{"embeddings": rows})
			metadata = append(metadata, object{"_id": string(rune('a' + i)), "n": i})
		}
		request, err := json.Marshal(object{"metadata": metadata})
		require.NoError(t, err)
		for _, name := range []string{"json", "tensors"} {
			s.ok(t, 200, "DELETE", "/indices/"+name, nil, nil)
			s.ok(t, 200, "POST", "/indices", object{"name": name}, nil)
		}
		s.ok(t, 202, "POST", "/indices/json/update", object{"documents": documents, "metadata": metadata}, nil)
		tensors := []tensor{f32Tensor(dim, values...), lengthsTensor(lengths...), requestTensor(string(request))}
		body := safetensors(rapid.Permutation(tensors).Draw(r, "order")...)
		reply := s.send(t, "POST", "/indices/tensors/update", body, tensorsMedia, "Prefer: return=representation")
		require.Equal(t, 200, reply.status, reply.body)
		ask := "/documents?vectors=base64&document_id=0&id=a"
		require.Equal(t, s.send(t, "GET", "/indices/json"+ask, nil).body, s.send(t, "GET", "/indices/tensors"+ask, nil).body)

		options := object{"params": object{"top_k": 3}, "filter_condition": "n >= ?", "filter_parameters": list{0}}
		text, err := json.Marshal(options)
		require.NoError(t, err)
		options["queries"] = documents
		want := s.send(t, "POST", "/indices/json/search/filtered", options)
		require.Equal(t, 200, want.status, want.body)
		got := s.send(t, "POST", "/indices/tensors/search/filtered", safetensors(f32Tensor(dim, values...), lengthsTensor(lengths...), requestTensor(string(text))), tensorsMedia)
		require.Equal(t, want.body, got.body)
	})
}

func TestTensorTypes(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "x"}, nil)
	for i, v := range []tensor{
		{"vectors", "F32", []int{1, 2}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0}},
		{"vectors", "F16", []int{1, 2}, []byte{0, 0x3c, 0, 0}},
		{"vectors", "BF16", []int{1, 2}, []byte{0x80, 0x3f, 0, 0}},
		{"vectors", "F64", []int{1, 2}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0}},
	} {
		lengths := tensor{"lengths", "I8", []int{1}, []byte{1}}
		r := s.send(t, "POST", "/indices/x/update", safetensors(v, lengths), tensorsMedia)
		require.Equal(t, 202, r.status, r.body)
		var got struct {
			Documents []struct{ Embeddings [][]float32 }
		}
		s.ok(t, 200, "GET", "/indices/x/documents?vectors=json&document_id="+string(rune('0'+i)), nil, &got)
		require.InDeltaSlice(t, []float32{1, 0}, got.Documents[0].Embeddings[0], .005, v.dtype)
	}
}

// Each query may have its own restriction, and the names come without the metadata.
func TestTensorQueriesOfTheirOwn(t *testing.T) {
	s := startPets(t)
	values := slices.Concat(flat("cats and"), flat("dogs"))
	request := `{"queries": [{"ids": ["a", "c"]}, {"ids": ["b"]}], "metadata": false}`
	r := s.send(t, "POST", "/indices/pets/search", safetensors(f32Tensor(wordDim, values...), lengthsTensor(2, 1), requestTensor(request)), tensorsMedia)
	require.Equal(t, 200, r.status, r.body)
	var out struct {
		Results []struct {
			IDs       []string
			Documents []uint32 `json:"document_ids"`
			Metadata  []object
		}
	}
	r.json(t, &out)
	require.Equal(t, []string{"a", "c"}, out.Results[0].IDs)
	require.Equal(t, []uint32{0, 2}, out.Results[0].Documents)
	require.Equal(t, []string{"b"}, out.Results[1].IDs)
	require.Nil(t, out.Results[0].Metadata)
	readContract(t, s).answers(t, "POST", "/indices/pets/search", r)
}

func TestBadTensors(t *testing.T) {
	s := startPets(t)
	good := f32Tensor(wordDim, flat("cats dogs")...)
	nan := f32Tensor(wordDim, flat("cats dogs")...)
	copy(nan.data[4*wordDim:], []byte{0, 0, 0xc0, 0x7f})
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"empty":              {nil, "no safetensors header"},
		"cut":                {safetensors(good, lengthsTensor(2))[:40], "cut short"},
		"no vectors":         {safetensors(lengthsTensor(2)), `no tensor named "vectors"`},
		"no lengths":         {safetensors(good), `no tensor named "lengths"`},
		"lengths too few":    {safetensors(good, lengthsTensor(1)), "1 short of the 2 vectors"},
		"lengths too many":   {safetensors(good, lengthsTensor(1, 2)), "number 1 of lengths is 2, and 1 vectors are left"},
		"negative":           {safetensors(good, lengthsTensor(3, -1)), "number 0"},
		"one axis":           {safetensors(tensor{"vectors", "F32", []int{2}, make([]byte, 8)}, lengthsTensor(2)), "has the shape [2]"},
		"whole numbers":      {safetensors(tensor{"vectors", "I32", []int{1, 2}, make([]byte, 8)}, lengthsTensor(1)), "has the type I32"},
		"lengths of floats":  {safetensors(good, tensor{"lengths", "F32", []int{1}, make([]byte, 4)}), "want integers"},
		"lengths of 2 axes":  {safetensors(good, tensor{"lengths", "U8", []int{1, 1}, []byte{2}}), "want one axis"},
		"not finite":         {safetensors(nan, lengthsTensor(2)), "document 0: token 1: component 0 is NaN"},
		"request no JSON":    {safetensors(good, lengthsTensor(2), requestTensor("{")), "JSON"},
		"request of numbers": {safetensors(good, lengthsTensor(2), tensor{"request", "F32", []int{1}, make([]byte, 4)}), "want bytes"},
		"documents twice":    {safetensors(good, lengthsTensor(2), requestTensor(`{"documents": []}`)), "as tensors too"},
		"metadata of others": {safetensors(good, lengthsTensor(2), requestTensor(`{"metadata": [{}, {}]}`)), "one for each"},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/update", c.body, tensorsMedia)
			require.Contains(t, p.Message, c.want)
		})
	}
	s.refused(t, 400, server.CodeDimension, "POST", "/indices/pets/update", safetensors(f32Tensor(1, 1, 1), lengthsTensor(2)), tensorsMedia)
	for request, want := range map[string]string{
		`{"queries": [{}, {}]}`:                "2 queries in the request and 1 as tensors",
		`{"queries": [{"embeddings": [[1]]}]}`: "has vectors in the request, and as a tensor too",
		`{"top_k": 1}`:                         "top_k",
	} {
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", safetensors(good, lengthsTensor(2), requestTensor(request)), tensorsMedia)
		require.Contains(t, p.Message, want)
	}
	other := tensor{"other", "U8", []int{1}, []byte{0}}
	require.Equal(t, 200, s.send(t, "POST", "/indices/pets/search", safetensors(good, lengthsTensor(2), other), tensorsMedia, "Prefer: handling=lenient").status)
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", safetensors(good, lengthsTensor(2), other), tensorsMedia)
	require.Contains(t, p.Message, `"other" is not known`)
	// Only routes with vectors take tensors, and nobody takes a form.
	s.refused(t, 415, server.CodeMediaType, "POST", "/indices/pets/metadata/query", safetensors(good, lengthsTensor(2)), tensorsMedia)
	p = s.refused(t, 415, server.CodeMediaType, "POST", "/indices/pets/search", "x", "Content-Type: multipart/form-data")
	require.Contains(t, p.Message, "application/safetensors")
	var v object
	s.ok(t, 200, "GET", "/indices/pets", nil, &v)
	require.Equal(t, 3., v["num_documents"])
}
