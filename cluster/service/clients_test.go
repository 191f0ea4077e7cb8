package service_test

import (
	"context"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/service"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/pyenv"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

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
	return v // scaled where it matters
}

func flat(text string) (v []float32) {
	for _, w := range strings.Fields(strings.ToLower(text)) {
		v = append(v, word(w)...)
	}
	return v
}

// words is an encoder with a token a word.
type words struct{}

func (words) Dim() int { return dim }

func (words) Config() encode.Config { return encode.Config{} }

func (words) Queries(ctx context.Context, texts []string) ([]encode.Embedding, error) {
	out := make([]encode.Embedding, len(texts))
	for i, text := range texts {
		out[i].Vectors = flat(text)
	}
	return out, ctx.Err()
}

func (words) Documents(ctx context.Context, texts iter.Seq2[encode.Text, error]) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for text, err := range texts {
			if err == nil {
				err = ctx.Err()
			}
			if !yield(vectors.Document{ID: text.ID, Tokens: flat(text.Full()), Payload: text.Payload}, err) || err != nil {
				return
			}
		}
	}
}

func (words) Tokenize(encode.Role, string) ([]encode.Token, error) { return nil, nil }

// The clients that exist use a cluster as they use a folder of indexes: next-plaid-client
// (both classes and the command line) and langchain-plaid.
func TestRealClients(t *testing.T) {
	if testing.Short() {
		t.Skip("installs Python packages")
	}
	python := pyenv.Python(t, "../../server/testdata/clients/requirements.txt")
	c := clustertest.New(t, 3)
	f, err := service.New(c.Ctx, c.Connect("front"), service.Config{
		Client: client.Config{Deadline: clustertest.Patience, WriteDeadline: clustertest.Patience}, Place: "a test",
		Store: c.Store, Create: operate.CreateOptions{Shards: 3, Replicas: 2},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	start := func(o *server.Options) string {
		s, err := server.New(f, words{}, o)
		require.NoError(t, err)
		h := httptest.NewServer(s)
		t.Cleanup(h.Close)
		return h.URL
	}
	out, err := pyenv.Run([]string{"PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "LANGSMITH_TRACING=false"}, python,
		"testdata/clients.py", "--folder", "../../server/testdata/clients", "--url", start(nil),
		"--tokens", start(&server.Options{Tokens: server.Tokens{server.NewToken("reader", server.Read, "read-read-read-read")}}))
	require.NoError(t, err, out)
	t.Log(out)
}
