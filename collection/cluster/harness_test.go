package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

const dim = 16

type (
	object = map[string]any
	list   = []any
)

// shards sets the number of shards of a collection, and of replicas of a shard.
func shards(shards, replicas int, more ...func(*cluster.Config)) func(*cluster.Config) {
	return func(c *cluster.Config) {
		c.Shards, c.Replicas = shards, replicas
		for _, f := range more {
			f(c)
		}
	}
}

// small lets collections grow through all stages with few tokens.
func small(c *cluster.Config) { c.Index.Growth = collection.Growth{Flat: 40, Until: 160, Factor: 2} }

// hasty lets checkpoints be made after some entries, and what is not needed be removed at once.
func hasty(c *cluster.Config) { c.CheckpointBytes, c.Grace = 10*64<<10, time.Second }

// front is a service over collections.
type front struct {
	t   testing.TB
	url string
}

func serve(t testing.TB, set collection.Catalog, e server.Encoder, o *server.Options) *front {
	t.Helper()
	s, err := server.New(set, e, o)
	require.NoError(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &front{t, h.URL}
}

// folder is a service over a folder of indexes.
func folder(t *testing.T) *front {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir(), &store.Options{Threads: 1, Derive: store.DeriveKeywords(nil)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close(context.Background())) })
	return serve(t, st.Catalog(), nil, nil)
}

// try sends a request, and returns the status and the answer.
func (f *front) try(ctx context.Context, method, path, kind string, body []byte) (status int, text []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	r.Header.Set("Prefer", "return=representation")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	text, err = io.ReadAll(a.Body)
	return a.StatusCode, text, err
}

// ask is try of a request that is answered.
func (f *front) ask(method, path, kind string, body []byte) (int, []byte) {
	f.t.Helper()
	status, text, err := f.try(context.Background(), method, path, kind, body)
	require.NoError(f.t, err)
	return status, text
}

// do sends a request that must be answered with a status, and reads the answer into v,
// unless that is nil.
func (f *front) do(status int, method, path string, body, v any) {
	f.t.Helper()
	var sent []byte
	if body != nil {
		var err error
		sent, err = json.Marshal(body)
		require.NoError(f.t, err)
	}
	got, text := f.ask(method, path, "application/json", sent)
	require.Equal(f.t, status, got, "%s %s: %.500s", method, path, text)
	if v != nil {
		require.NoError(f.t, json.Unmarshal(text, v), string(text))
	}
}

// word is a unit vector for a word, the one that clients.py makes.
func word(w string) []float32 {
	state := uint32(2166136261)
	for _, c := range []byte(w) {
		state = (state ^ uint32(c)) * 16777619
	}
	v := make([]float32, dim)
	for i := range v {
		state = state*1664525 + 1013904223
		v[i] = float32(float64(state)/(1<<31) - 1)
	}
	codec.Normalize(v, dim)
	return v
}

func flat(text string) (v []float32) {
	for _, w := range strings.Fields(strings.ToLower(text)) {
		v = append(v, word(w)...)
	}
	return v
}

// rows are the vectors of a text, as JSON has them.
func rows(text string) (all [][]float32) {
	return slices.Collect(slices.Chunk(flat(text), dim))
}

// words is an encoder with a token a word.
type words struct{}

func (words) Dim() int { return dim }

func (words) Config() encode.Config {
	return encode.Config{Config: modeldir.Config{Dir: "models/words", Query: modeldir.Role{Length: 32},
		Document: modeldir.Role{Length: 300}}, Precision: "f32", Fingerprint: "words"}
}

func (words) Queries(ctx context.Context, texts []string) ([]encode.Embedding, error) {
	out := make([]encode.Embedding, len(texts))
	for i, text := range texts {
		out[i].Vectors = flat(text)
	}
	return out, ctx.Err()
}

func (words) DocumentsReport(ctx context.Context, texts iter.Seq2[encode.Text, error],
	_ *encode.Report) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for text, err := range texts {
			if err == nil {
				err = ctx.Err()
			}
			if !yield(vectors.Document{ID: text.ID, Tokens: flat(text.Full()), Payload: text.Payload}, err) ||
				err != nil {
				return
			}
		}
	}
}

func (words) Tokenize(_ encode.Role, text string) ([]encode.Token, error) {
	var out []encode.Token
	at := 0
	for _, w := range strings.Fields(text) {
		begin := at + strings.Index(text[at:], w)
		at = begin + len(w)
		out = append(out, encode.Token{Piece: strings.ToLower(w), Start: begin, End: at, Kept: true})
	}
	return out, nil
}

// document has a token a word of its text.
func document(id, text string, metadata string) collection.DocumentInput {
	return collection.DocumentInput{ID: id, Vectors: flat(text), Dim: dim, Metadata: json.RawMessage(metadata)}
}

// update adds or replaces documents.
func update(t testing.TB, c collection.Collection, docs ...collection.DocumentInput) collection.Receipt {
	t.Helper()
	r, err := c.Update(t.Context(), docs, collection.UpdateOptions{Replace: true})
	require.NoError(t, err)
	return r
}

// ids are those of all documents, in the order of their names.
func ids(t testing.TB, c collection.Collection) []string {
	t.Helper()
	all := []string{}
	v, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	defer v.Close()
	for d, err := range v.Documents(t.Context(), collection.Selection{}, collection.ReadOptions{}) {
		require.NoError(t, err)
		all = append(all, d.ID)
	}
	slices.Sort(all)
	return all
}

// three starts three nodes with collections of some shards.
func three(t *testing.T, s, replicas int) *clustertest.Cluster {
	t.Helper()
	return clustertest.New(t, clustertest.Options{Change: shards(s, replicas)})
}
