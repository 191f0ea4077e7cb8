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
	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
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
	codec.Normalize(v, dim)
	return v
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

func (words) Config() encode.Config {
	return encode.Config{Config: modeldir.Config{Dir: "models/words", Query: modeldir.Role{Length: 32}, Document: modeldir.Role{Length: 300}}, Precision: "f32", Fingerprint: "words"}
}

func (words) Queries(ctx context.Context, texts []string) ([]encode.Embedding, error) {
	out := make([]encode.Embedding, len(texts))
	for i, text := range texts {
		out[i].Vectors = flat(text)
	}
	return out, ctx.Err()
}

func (words) DocumentsReport(ctx context.Context, texts iter.Seq2[encode.Text, error], _ *encode.Report) iter.Seq2[vectors.Document, error] {
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

// The clients that exist use a cluster of three as they use a folder of indexes, in the same
// test: next-plaid-client (both classes and the command line), langchain-plaid, those of OpenAI
// and Cohere. Collections are of one shard, so that documents have the numbers of a file.
func TestRealClients(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs Python packages")
	}
	python := pyenv.Python(t, clients+"/requirements.txt")
	args := []string{clients + "/clients.py", "--tmp", t.TempDir(), "--keywords"}
	for name, o := range map[string]*server.Options{
		"plain": {}, "texts": {}, "damaged": {}, "loading": {EncoderLater: true}, "limited": {Limits: server.Limits{Rate: .001, Burst: 5}},
		"tokens": {Tokens: server.Tokens{server.NewToken("reader", server.Read, "read-read-read-read")}},
	} {
		c := clustertest.New(t, 3)
		if name == "damaged" {
			_, err := c.Bus.Maps.Put(c.Ctx, name, []byte(`{"format":1}`))
			require.NoError(t, err)
		}
		var e server.Encoder
		if name == "texts" {
			e = words{}
		}
		args = append(args, "--"+name, serveClients(t, c, e, o, operate.CreateOptions{Shards: 1, Replicas: 3}))
	}
	out, err := pyenv.Run(pythonEnv, python, args...)
	require.NoError(t, err, out)
	t.Log(out)
}

const clients = "../../server/testdata/clients"

var pythonEnv = []string{"PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "LANGSMITH_TRACING=false"}

// serveClients is a service over a cluster, for clients of all kinds.
func serveClients(t *testing.T, c *clustertest.Cluster, e server.Encoder, o *server.Options, create operate.CreateOptions) string {
	f, err := service.New(c.Ctx, c.Connect("front"), service.Config{
		Client: client.Config{Deadline: clustertest.Patience, WriteDeadline: clustertest.Patience}, Place: "a test", Store: c.Store, Create: create, Threads: 1,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	s, err := server.New(f, e, o)
	require.NoError(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL
}

// The same clients use collections of three shards, whose documents have other numbers.
func TestRealClientsOfShards(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs Python packages")
	}
	python := pyenv.Python(t, clients+"/requirements.txt")
	c := clustertest.New(t, 3)
	of := operate.CreateOptions{Shards: 3, Replicas: 2}
	out, err := pyenv.Run(pythonEnv, python, "testdata/clients.py", "--folder", clients, "--url", serveClients(t, c, words{}, nil, of),
		"--tokens", serveClients(t, c, words{}, &server.Options{Tokens: server.Tokens{server.NewToken("reader", server.Read, "read-read-read-read")}}, of))
	require.NoError(t, err, out)
	t.Log(out)
}
