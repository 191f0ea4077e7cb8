package server_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stretchr/testify/require"

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
	s, err := server.New(st.Set(), words{}, nil)
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
		r := httptest.NewRequest(method, path, strings.NewReader(string(body)))
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
