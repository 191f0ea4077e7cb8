package encode

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/onnxruntime"
	"github.com/plaid-ir/plaid/encode/remote"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// needLibrary skips a test where there is no onnxruntime.
func needLibrary(t testing.TB) {
	t.Helper()
	if os.Getenv(onnxruntime.EnvLibrary) == "" {
		t.Skipf("%s does not name the library onnxruntime", onnxruntime.EnvLibrary)
	}
}

// TestONNXRuntimeStored: the vectors that Python's onnxruntime gave are those of
// this backend, as float16, but for last bits: another version, processor or batch may round
// otherwise.
func TestONNXRuntimeStored(t *testing.T) {
	needLibrary(t)
	for _, name := range collections() {
		c := load(t, name)
		reference, _ := stored(t, name)
		e := open(t, miniGraph(t), &Options{Backend: ONNXRuntime})
		require.Equal(t, ONNXRuntime, e.Config().Backend)
		if !effort.Long() {
			c.docs, reference.docs = c.docs[:40], reference.docs[:40]
			c.queries, reference.queries = c.queries[:10], reference.queries[:10]
		}
		got := encodeAll(t, e, c)
		require.Empty(t, fault(reference.docs, got.docs))
		require.Empty(t, fault(reference.queries, got.queries))
	}
}

// TestONNXRuntimeIsNative: the same model by the two backends.
func TestONNXRuntimeIsNative(t *testing.T) {
	needLibrary(t)
	a, b := open(t, mini(t), nil), open(t, miniGraph(t), &Options{Backend: ONNXRuntime, Threads: 2})
	require.Equal(t, a.Dim(), b.Dim())
	for _, text := range []string{"cells", "What makes a bird sing? It is not known."} {
		x, err := a.Query(t.Context(), text)
		require.NoError(t, err)
		y, err := b.Query(t.Context(), text)
		require.NoError(t, err)
		require.Equal(t, x.Tokens, y.Tokens)
		require.Less(t, difference(t, x.Vectors, y.Vectors), 3e-6)
	}
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	_, err := b.Query(t.Context(), "a")
	require.ErrorIs(t, err, ErrClosed)
}

// graphFolder is one of an export: a graph that knows ten ids.
func graphFolder(t *testing.T) string {
	dir := t.TempDir()
	modeltest.JSON(t, filepath.Join(dir, "tokenizer.json"), modeltest.Tokenizer())
	modeltest.JSON(t, filepath.Join(dir, "onnx_config.json"), map[string]any{
		"query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 8, "document_length": 12, "do_query_expansion": false,
		"embedding_dim": 4, "mask_token_id": 4, "skiplist_words": []string{"!"},
	})
	b, err := os.ReadFile(filepath.Join("onnxruntime", "testdata", "plain.onnx"))
	require.NoError(t, err)
	modeltest.WriteFile(t, filepath.Join(dir, "onnx", "model.onnx"), b)
	return dir
}

// TestGraphFolders: an export needs no config.json, and no weights beside the graph.
func TestGraphFolders(t *testing.T) {
	dir := graphFolder(t)
	_, err := Open(dir, &Options{Backend: ONNXRuntime, Precision: Int8})
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	require.ErrorContains(t, err, "model_int8.onnx")
	for _, graph := range []string{"../model.onnx", "/model.onnx"} {
		_, err = Open(dir, &Options{Backend: ONNXRuntime, Graph: graph})
		require.ErrorIs(t, err, modeldir.ErrConfig)
	}
	_, err = Open(dir, &Options{Backend: ONNXRuntime, Graph: "model.onnx"})
	require.ErrorIs(t, err, modeldir.ErrIncomplete)
	needLibrary(t)
	e := open(t, dir, &Options{Backend: ONNXRuntime})
	require.Equal(t, 4, e.Dim())
	require.Len(t, e.Config().Warnings, 1, "that exporters never expand")
	for doc, err := range e.Documents(t.Context(), Texts(Text{Text: "!!!"})) {
		require.NoError(t, err)
		require.Len(t, doc.Tokens, 3*4) // [CLS] [D] [SEP]
	}
	open(t, dir, &Options{Backend: ONNXRuntime, Graph: "onnx/model.onnx"})
	// What the graph gives is held against what the folder says.
	modeltest.Edit(t, filepath.Join(dir, "onnx_config.json"), map[string]any{"embedding_dim": 128})
	_, err = Open(dir, &Options{Backend: ONNXRuntime})
	require.ErrorIs(t, err, modeldir.ErrContradiction)
	modeltest.Edit(t, filepath.Join(dir, "onnx_config.json"), map[string]any{"embedding_dim": nil})
	open(t, dir, &Options{Backend: ONNXRuntime})
	// An id that the graph does not know is the library's error, with the text.
	e = open(t, dir, &Options{Backend: ONNXRuntime})
	_, err = e.Query(t.Context(), "the search")
	var te *TextError
	require.ErrorAs(t, err, &te)
	modeltest.WriteFile(t, filepath.Join(dir, "onnx", "model.onnx"), []byte("no graph"))
	_, err = Open(dir, &Options{Backend: ONNXRuntime})
	require.ErrorIs(t, err, modeldir.ErrGraph)
	require.ErrorIs(t, err, onnxruntime.ErrGraph)
	var me *modeldir.ModelError
	require.ErrorAs(t, err, &me)
	require.Equal(t, filepath.Join(dir, "onnx", "model.onnx"), me.Path)
}

// TestBackendsByName: what was asked for, or an error; never another one.
func TestBackendsByName(t *testing.T) {
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "bert")
	for name, o := range map[string]*Options{
		"unknown": {Backend: "onnx"}, "library": {Library: "x"}, "graph": {Graph: "x"},
		"tier": {Backend: ONNXRuntime, Tier: "avx2"}, "server": {Remote: &remote.Options{}}, "folder": {Backend: Remote, Remote: &remote.Options{}},
		"pool": {Pool: -1},
	} {
		_, err := Open(dir, o)
		require.ErrorIs(t, err, engine.ErrBackend, name)
	}
	long := 4
	for name, o := range map[string]*Options{
		"no server": {Backend: Remote}, "precision": {Backend: Remote, Remote: &remote.Options{}, Precision: Int8},
		"length":   {Backend: Remote, Remote: &remote.Options{}, QueryLength: 4},
		"override": {Backend: Remote, Remote: &remote.Options{}, Override: &modeldir.Override{QueryLength: &long}},
		"library":  {Backend: Remote, Remote: &remote.Options{}, Library: "x"},
	} {
		_, err := Open("", o)
		require.ErrorIs(t, err, engine.ErrBackend, name)
	}
	modeltest.WriteFile(t, filepath.Join(dir, "model.onnx"), []byte("x"))
	missing := filepath.Join(dir, "libonnxruntime.so")
	_, err := Open(dir, &Options{Backend: ONNXRuntime, Library: missing})
	if runtime.GOOS == "linux" {
		var le *engine.LibraryError
		require.ErrorAs(t, err, &le)
		require.Equal(t, missing, le.Path)
	} else {
		require.Error(t, err)
	}
	e := open(t, dir, &Options{Backend: Native})
	require.Equal(t, Native, e.Config().Backend)
}

// TestRemoteIsNative: a server that has the model gives what the model gives,
// through the whole of the encoder.
func TestRemoteIsNative(t *testing.T) {
	e := open(t, nano(t), nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Input   []string `json:"input"`
			IsQuery bool     `json:"is_query"`
		}
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			t.Error(err)
		}
		type item struct {
			Embedding [][]float32 `json:"embedding"`
		}
		answer := struct {
			Data []item `json:"data"`
		}{}
		add := func(x []float32) {
			var rows [][]float32
			for ; len(x) > 0; x = x[e.Dim():] {
				rows = append(rows, append([]float32(nil), x[:e.Dim()]...))
			}
			answer.Data = append(answer.Data, item{rows})
		}
		if ask.IsQuery {
			list, err := e.Queries(r.Context(), ask.Input)
			if err != nil {
				t.Error(err)
			}
			for _, q := range list {
				add(q.Vectors)
			}
		} else {
			var texts []Text
			for _, x := range ask.Input {
				texts = append(texts, Text{Text: x})
			}
			for doc, err := range e.Documents(r.Context(), Texts(texts...)) {
				if err != nil {
					t.Error(err)
				}
				add(doc.Tokens)
			}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	far := open(t, "", &Options{Backend: Remote, Threads: 2, Remote: &remote.Options{URL: srv.URL, API: "pylate", Batch: 3, Backoff: time.Millisecond}})
	require.Equal(t, e.Dim(), far.Dim())
	require.Equal(t, Remote, far.Config().Backend)
	require.NotEqual(t, e.Config().Fingerprint, far.Config().Fingerprint)
	c := load(t, "scifact-sample")
	docs := append([]Text{{ID: "empty", Title: " "}}, c.docs[:7]...)
	docs = append(docs, Text{ID: "end"})
	var near, there Report
	want := map[string][]float32{}
	for doc, err := range e.DocumentsReport(t.Context(), Texts(docs...), &near) {
		require.NoError(t, err)
		want[doc.ID] = append([]float32{}, doc.Tokens...)
	}
	i := 0
	for doc, err := range far.DocumentsReport(t.Context(), Texts(docs...), &there) {
		require.NoError(t, err)
		require.Equal(t, docs[i].ID, doc.ID)
		require.Equal(t, want[doc.ID], append([]float32{}, doc.Tokens...))
		i++
	}
	require.Equal(t, len(docs), i)
	require.Equal(t, Report{Texts: 9, Empty: 2, Tokens: near.Vectors, Vectors: near.Vectors}, there)
	q, err := e.Query(t.Context(), "cells")
	require.NoError(t, err)
	p, err := far.Query(t.Context(), " cells ")
	require.NoError(t, err)
	require.Equal(t, q.Vectors, p.Vectors)
	require.Empty(t, p.Tokens)
	p, err = far.Query(t.Context(), " ")
	require.NoError(t, err)
	require.Empty(t, p.Vectors)
	_, err = far.Query(t.Context(), "\xff")
	require.ErrorIs(t, err, tokenizer.ErrText)
	_, err = far.Tokenize(Query, "\xff")
	require.ErrorIs(t, err, tokenizer.ErrText)

	srv.Close()
	_, err = far.Query(t.Context(), "cells")
	var re *remote.Error
	require.ErrorAs(t, err, &re)
	require.Contains(t, re.URL, srv.URL)
}

// TestPooled: documents are pooled as an index would pool them, queries are not.
func TestPooled(t *testing.T) {
	e, p := open(t, nano(t), nil), open(t, nano(t), &Options{Pool: 3})
	require.Equal(t, e.Config().Fingerprint, p.Config().Fingerprint)
	docs := append(load(t, "scifact-sample").docs[:5:5], Text{ID: "empty"}, Text{ID: "one", Text: "cell"})
	var want [][]float32
	var pooler pool.Pooler
	for doc, err := range e.Documents(t.Context(), Texts(docs...)) {
		require.NoError(t, err)
		want = append(want, pooler.Pool([]float32{}, doc.Tokens, e.Dim(), 3))
	}
	var r Report
	i := 0
	for doc, err := range p.DocumentsReport(t.Context(), Texts(docs...), &r) {
		require.NoError(t, err)
		require.Equal(t, want[i], append([]float32{}, doc.Tokens...))
		i++
	}
	require.Equal(t, len(docs), i)
	require.Less(t, r.Vectors, r.Tokens/2)
	x, err := e.Query(t.Context(), "cells")
	require.NoError(t, err)
	y, err := p.Query(t.Context(), "cells")
	require.NoError(t, err)
	require.Equal(t, x, y)

	path := filepath.Join(t.TempDir(), "spool")
	s, _, err := Spool(t.Context(), p, Texts(docs...), path, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, _, err = Spool(t.Context(), e, Texts(docs...), path, nil)
	require.ErrorIs(t, err, vectors.ErrSpool)
	_, _, err = Spool(t.Context(), open(t, nano(t), &Options{Pool: 2}), Texts(docs...), path, nil)
	require.ErrorIs(t, err, vectors.ErrSpool)
	s, r2, err := Spool(t.Context(), p, Texts(docs...), path, nil)
	require.NoError(t, err)
	require.Equal(t, len(docs), r2.Resumed)
	require.NoError(t, s.Close())
}
