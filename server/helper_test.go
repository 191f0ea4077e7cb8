package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels/transformer"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
	"github.com/plaid-ir/plaid/vectors"
)

func TestMain(m *testing.M) {
	effort.Rapid(20, 100)
	os.Exit(m.Run())
}

// openStore opens a store in a folder that goes with the test.
func openStore(t testing.TB, o *store.Options) *store.Store {
	t.Helper()
	return openStoreAt(t, t.TempDir(), o)
}

func openStoreAt(t testing.TB, dir string, o *store.Options) *store.Store {
	t.Helper()
	if o == nil {
		o = &store.Options{Derive: store.DeriveKeywords(nil)}
	}
	st, err := store.Open(context.Background(), dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close(context.Background())) })
	return st
}

// service is a server that listens, and its store.
type service struct {
	*server.Server
	URL   string
	store *store.Store
}

func start(t testing.TB, e server.Encoder, o *server.Options) *service {
	t.Helper()
	return startAt(t, openStore(t, nil), e, o)
}

func startAt(t testing.TB, st *store.Store, e server.Encoder, o *server.Options) *service {
	t.Helper()
	s, err := server.New(st.Catalog(), e, patient(o))
	require.NoError(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &service{s, h.URL, st}
}

// patient returns the options with the tools of agents, and without limits of time that the test
// does not set: on a busy machine a request may take longer than the 30 seconds that are usual.
func patient(o *server.Options) *server.Options {
	var p server.Options
	if o != nil {
		p = *o
	}
	if p.Agents == nil {
		p.Agents = func(service http.Handler) http.Handler { return mcp.New(mcp.NewInProcess(service), "1").Handler() }
	}
	if p.Limits.Quick == 0 {
		p.Limits.Quick = -1
	}
	if p.Limits.Work == 0 {
		p.Limits.Work = -1
	}
	return &p
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// json reads the body into v.
func (r *reply) json(t testing.TB, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.body), v), r.body)
}

// send sends a request through the handler, without a network. A body that is no
// string is sent as JSON. Headers are "Name: value".
func (s *service) send(t testing.TB, method, path string, body any, headers ...string) *reply {
	t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	case []byte:
		in = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		require.NoError(t, err)
		in = bytes.NewReader(text)
	}
	r := httptest.NewRequest(method, "http://localhost/", in)
	r.RequestURI = path
	u, err := url.ParseRequestURI(path)
	require.NoError(t, err)
	r.URL = u
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return &reply{w.Code, w.Header(), w.Body.String()}
}

// ok sends a request that must be answered with the status, and reads the answer
// into v, unless that is nil.
func (s *service) ok(t testing.TB, status int, method, path string, body, v any) {
	t.Helper()
	r := s.send(t, method, path, body)
	require.Equal(t, status, r.status, r.body)
	if v != nil {
		r.json(t, v)
	}
}

// refused sends a request that must fail with a status and a code.
func (s *service) refused(t testing.TB, status int, code server.Code, method, path string, body any, headers ...string) *server.Problem {
	t.Helper()
	r := s.send(t, method, path, body, headers...)
	require.Equal(t, status, r.status, r.body)
	return isProblem(t, r, code)
}

func isProblem(t testing.TB, r *reply, code server.Code) *server.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), r.body)
	var p server.Problem
	r.json(t, &p)
	require.Equal(t, code, p.Code, r.body)
	require.Equal(t, r.status, p.Status)
	require.NotEmpty(t, p.Message)
	require.NotContains(t, p.Message, string(code)+": ", "a problem within a problem")
	require.Equal(t, p.Message, p.Detail)
	require.NotEmpty(t, p.Title)
	require.Equal(t, r.header.Get("X-Request-ID"), p.RequestID)
	return &p
}

// object is a JSON object.
type object = map[string]any

// list is a JSON array.
type list = []any

const wordDim = 16

// word is a unit vector for a word, the one that clients.py makes.
func word(w string) []float32 {
	state := uint32(2166136261)
	for _, c := range []byte(w) {
		state = (state ^ uint32(c)) * 16777619
	}
	v := make([]float64, wordDim)
	var norm float64
	for i := range v {
		state = state*1664525 + 1013904223
		v[i] = float64(state)/(1<<31) - 1
		norm += v[i] * v[i]
	}
	out := make([]float32, wordDim)
	for i := range v {
		out[i] = float32(v[i] / math.Sqrt(norm))
	}
	return out
}

// matrix has a vector for each word.
func matrix(text string) [][]float32 {
	var rows [][]float32
	for _, w := range strings.Fields(strings.ToLower(text)) {
		rows = append(rows, word(w))
	}
	return rows
}

func flat(text string) []float32 {
	var v []float32
	for _, row := range matrix(text) {
		v = append(v, row...)
	}
	return v
}

// words is an encoder with a token a word.
type words struct{}

var _ server.Encoder = words{}

func (words) Dim() int { return wordDim }

func (words) Config() encode.Config {
	return encode.Config{Config: modeldir.Config{Dir: "models/words", Backbone: modeldir.Backbone{Config: transformer.Config{MaxPositions: 512}}, Query: modeldir.Role{Length: 32}, Document: modeldir.Role{Length: 300}}, Precision: "f32", Fingerprint: "words"}
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
