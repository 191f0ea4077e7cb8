package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake is a server of token vectors: of each text as many as it has words, which
// the text alone decides.
type fake struct {
	t     testing.TB
	api   string
	calls atomic.Int64
	token string
	// before may answer in its stead, and then says true. The first call, which
	// finds the dimension, is not shown to it.
	before func(w http.ResponseWriter, r *http.Request, call int64) bool
	// change may spoil an answer.
	change func(v [][][]float32) any
	asked  sync.Map // requests' bodies
}

func vectorsOf(text string) (v [][]float32) {
	for _, w := range strings.Fields(text) {
		x := []float32{float32(len(w)), 1, float32(w[0])}
		length := float32(math.Sqrt(float64(x[0]*x[0] + x[1]*x[1] + x[2]*x[2])))
		v = append(v, []float32{x[0] / length, x[1] / length, x[2] / length})
	}
	return v
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := f.calls.Add(1)
	if call > 1 && f.before != nil && f.before(w, r, call) {
		return
	}
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.asked.Store(call, string(b))
	var ask struct {
		Input, Inputs []string
	}
	if err := json.Unmarshal(b, &ask); err != nil {
		f.t.Errorf("%s: %v", b, err)
	}
	var v [][][]float32
	for _, text := range append(ask.Input, ask.Inputs...) {
		v = append(v, vectorsOf(text))
	}
	var answer any
	switch {
	case call > 1 && f.change != nil:
		answer = f.change(v)
	case f.api == "tei":
		answer = v
	default:
		field := map[string]string{"pylate": "embedding", "vllm": "data"}[f.api]
		var data []map[string]any
		for i := range v {
			item := map[string]any{field: v[i]}
			if f.api == "vllm" { // backwards: the index says which one it is
				item = map[string]any{field: v[len(v)-1-i], "index": len(v) - 1 - i}
			}
			data = append(data, item)
		}
		answer = map[string]any{"data": data, "model": "m", "usage": map[string]int{}}
	}
	if s, ok := answer.(string); ok {
		_, err = io.WriteString(w, s)
	} else {
		err = json.NewEncoder(w).Encode(answer)
	}
	if err != nil && r.Context().Err() == nil && f.change == nil {
		f.t.Log(err)
	}
}

func start(t testing.TB, f *fake) string {
	f.t = t
	if f.api == "" {
		f.api = "pylate"
	}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	for _, a := range apis {
		if a.name == f.api {
			return srv.URL + a.path
		}
	}
	t.Fatal(f.api)
	return ""
}

func client(t testing.TB, o Options) *Client {
	t.Helper()
	if o.Backoff == 0 {
		o.Backoff = time.Millisecond
	}
	c, err := New(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestKindsOfServers(t *testing.T) {
	texts := []string{"what makes a bird sing", "nobody", "knows it", "\"quoted\" ünd <b>"}
	for api, want := range map[string][2]string{
		"pylate": {`{"input":["Q: nobody"],"is_query":true,"model":"m"}`, `{"input":["nobody"],"is_query":false,"model":"m"}`},
		"vllm":   {`{"input":["Q: nobody"],"model":"m","task":"token_embed"}`, `{"input":["nobody"],"model":"m","task":"token_embed"}`},
		"tei":    {`{"inputs":["Q: nobody"],"truncate":true}`, `{"inputs":["nobody"],"truncate":true}`},
	} {
		f := &fake{api: api, token: "secret"}
		c := client(t, Options{URL: start(t, f), Model: "m", Batch: 3, QueryPrefix: "Q: ", Token: "secret"})
		require.Equal(t, 3, c.Dim())
		got, err := c.Encode(t.Context(), texts, false)
		require.NoError(t, err)
		require.Len(t, got, len(texts))
		for i, text := range texts {
			require.Equal(t, vectorsOf(text), got[i], "%s: %s", api, text)
		}
		require.EqualValues(t, 3, f.calls.Load(), "one for the dimension, two batches")
		for i, query := range []bool{true, false} {
			_, err = c.Encode(t.Context(), []string{"nobody"}, query)
			require.NoError(t, err)
			body, _ := f.asked.Load(int64(4 + i))
			require.JSONEq(t, want[i], body.(string), api)
		}
	}
}

// TestAsksAgain: what passes is waited for, what does not is an error at once.
func TestAsksAgain(t *testing.T) {
	for name, k := range map[string]struct {
		before func(w http.ResponseWriter, r *http.Request, call int64) bool
		calls  int64
		want   error
	}{
		"busy": {func(w http.ResponseWriter, _ *http.Request, call int64) bool {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader([]int{429, 503, 500, 502}[call%4])
			return call < 5
		}, 5, nil},
		"broken connections": {func(_ http.ResponseWriter, _ *http.Request, call int64) bool {
			if call < 4 {
				panic(http.ErrAbortHandler)
			}
			return false
		}, 4, nil},
		"answers that break off": {func(w http.ResponseWriter, _ *http.Request, call int64) bool {
			if call < 4 {
				w.Header().Set("Content-Length", "1000")
				io.WriteString(w, `{"data":[`)
				panic(http.ErrAbortHandler)
			}
			return false
		}, 4, nil},
		"always busy": {func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			http.Error(w, "later,\nplease", http.StatusServiceUnavailable)
			return true
		}, 6, ErrStatus},
		"bad request": {func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			http.Error(w, "no such model", http.StatusNotFound)
			return true
		}, 2, ErrStatus},
		"not built": {func(w http.ResponseWriter, _ *http.Request, _ int64) bool { w.WriteHeader(501); return true }, 2, ErrStatus},
		"redirect": {func(w http.ResponseWriter, r *http.Request, _ int64) bool {
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusTemporaryRedirect)
			return true
		}, 2, ErrStatus},
		"asks for an hour": {func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(429)
			return true
		}, 2, ErrStatus},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			if name == "busy" { // the header must not be written for calls that are let through
				inner := k.before
				k.before = func(w http.ResponseWriter, r *http.Request, call int64) bool { return call < 5 && inner(w, r, call) }
			}
			f.before = k.before
			c := client(t, Options{URL: start(t, f)})
			got, err := c.Encode(t.Context(), []string{"a b"}, true)
			require.Equal(t, k.calls, f.calls.Load())
			if k.want == nil {
				require.NoError(t, err)
				require.Equal(t, vectorsOf("a b"), got[0])
				return
			}
			require.ErrorIs(t, err, k.want)
			var re *Error
			require.ErrorAs(t, err, &re)
			require.Equal(t, c.URL(), re.URL)
			require.GreaterOrEqual(t, re.Status, 300)
			if name == "always busy" {
				require.ErrorContains(t, err, "after 5 attempts")
				require.ErrorContains(t, err, "503 Service Unavailable: later, please")
			}
		})
	}
}

// TestAnswersThatLie: nothing of them gets into vectors.
func TestAnswersThatLie(t *testing.T) {
	item := func(v any) map[string]any { return map[string]any{"embedding": v} }
	data := func(items ...any) any { return map[string]any{"data": items} }
	one := [][]float32{{1, 0, 0}}
	for name, answer := range map[string]any{
		"nothing":             "",
		"no JSON":             "<html>",
		"half":                `{"data": [{"embedding": [[1, 0`,
		"null":                "null",
		"a list":              "[]",
		"an error with 200":   `{"error": "overloaded"}`,
		"too few":             data(item(one)),
		"too many":            data(item(one), item(one), item(one)),
		"no vectors":          data(item(one), item([][]float32{})),
		"null vectors":        data(item(one), item(nil)),
		"an empty vector":     data(item(one), item([][]float32{{}})),
		"one vector a text":   data(item([]float32{1, 0, 0}), item([]float32{1, 0, 0})),
		"another dimension":   data(item(one), item([][]float32{{1, 0}})),
		"ragged":              data(item(one), item([][]float32{{1, 0, 0}, {1, 0, 0, 0}})),
		"zero":                data(item(one), item([][]float32{{0, 0, 0}})),
		"NaN":                 `{"data": [{"embedding": [[NaN, 0, 0]]}, {"embedding": [[1, 0, 0]]}]}`,
		"beyond float32":      `{"data": [{"embedding": [[1e39, 0, 0]]}, {"embedding": [[1, 0, 0]]}]}`,
		"text":                `{"data": [{"embedding": "AAAA"}, {"embedding": [[1, 0, 0]]}]}`,
		"the same index":      data(map[string]any{"index": 0, "data": one}, map[string]any{"index": 0, "data": one}),
		"an index beyond":     data(map[string]any{"index": 2, "data": one}, map[string]any{"index": 0, "data": one}),
		"an index below zero": data(map[string]any{"index": -1, "data": one}, map[string]any{"index": 0, "data": one}),
		"too long":            strings.Repeat(" ", 5000),
	} {
		f := &fake{change: func([][][]float32) any { return answer }}
		c := client(t, Options{URL: start(t, f), MaxAnswer: 4096})
		_, err := c.Encode(t.Context(), []string{"a", "b"}, false)
		require.ErrorIs(t, err, ErrAnswer, name)
		require.ErrorContains(t, err, c.URL(), name)
		require.EqualValues(t, 2, f.calls.Load(), name)
	}
	for name, answer := range map[string]string{"too few": `[[[1,0,0]]]`, "another shape": `[[1,0,0],[1,0,0]]`, "an object": `{}`} {
		f := &fake{api: "tei", change: func([][][]float32) any { return answer }}
		_, err := client(t, Options{URL: start(t, f)}).Encode(t.Context(), []string{"a", "b"}, false)
		require.ErrorIs(t, err, ErrAnswer, name)
	}
	// Vectors of another length are made unit vectors.
	f := &fake{change: func([][][]float32) any { return data(item([][]float32{{3, 4, 0}})) }}
	got, err := client(t, Options{URL: start(t, f)}).Encode(t.Context(), []string{"a"}, false)
	require.NoError(t, err)
	require.Equal(t, [][]float32{{0.6, 0.8, 0}}, got[0])
}

// TestSlowServers: time limits and the context end the waiting.
func TestSlowServers(t *testing.T) {
	release := make(chan struct{})
	f := &fake{before: func(_ http.ResponseWriter, r *http.Request, _ int64) bool {
		io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	}}
	address := start(t, f)
	t.Cleanup(func() { close(release) }) // before the server is closed
	c := client(t, Options{URL: address, Attempts: 2})
	c.options.Timeout = 20 * time.Millisecond
	_, err := c.Encode(t.Context(), []string{"a"}, true)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "after 2 attempts")

	f.calls.Store(0) // the next one finds the dimension
	c = client(t, Options{URL: address})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(5*time.Millisecond, cancel)
	_, err = c.Encode(ctx, []string{"a"}, true)
	require.ErrorIs(t, err, context.Canceled)
	// While it waits to ask again, too.
	waiting, stop := context.WithCancel(t.Context())
	defer stop()
	f = &fake{before: func(w http.ResponseWriter, _ *http.Request, _ int64) bool {
		w.WriteHeader(503)
		stop()
		return true
	}}
	c = client(t, Options{URL: start(t, f), Backoff: time.Hour, MaxWait: 2 * time.Hour})
	_, err = c.Encode(waiting, []string{"a"}, true)
	require.ErrorIs(t, err, context.Canceled)
}

// TestNoMoreAtOnce than was asked for.
func TestNoMoreAtOnce(t *testing.T) {
	var now, most atomic.Int64
	f := &fake{}
	f.before = func(http.ResponseWriter, *http.Request, int64) bool {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Millisecond) // so that others would come in
		return false
	}
	c := client(t, Options{URL: start(t, f), Concurrency: 2, Batch: 1})
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			text := fmt.Sprint("text ", i)
			v, err := c.Encode(context.Background(), []string{text, text}, false)
			if err == nil && len(v) != 2 {
				err = errors.New("too few")
			}
			errs <- err
		}()
	}
	wg.Wait()
	for range 8 {
		require.NoError(t, <-errs)
	}
	require.LessOrEqual(t, most.Load(), int64(2))
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {URL: "localhost:8002/v1/embeddings"}, {URL: "ftp://h/pooling"}, {URL: "http://"}, {URL: "http://h"}, {URL: "http://h/encode"},
		{URL: "http://h/pooling", API: "openai"}, {URL: "http://h/pooling#x"}, {URL: "http://h/pooling", Batch: -1},
		{URL: "http://h/pooling", Token: "a\nb"}, {URL: "http://user:pass%ZZ@h/pooling"},
	} {
		_, err := New(t.Context(), o)
		require.ErrorIs(t, err, ErrOptions, o.URL)
		require.NotContains(t, err.Error(), "pass")
	}
	// A password is in no error, and not in the fingerprint.
	f := &fake{}
	address := start(t, f)
	with := strings.Replace(address, "http://", "http://user:hidden@", 1)
	a, b := client(t, Options{URL: address}), client(t, Options{URL: with})
	require.Equal(t, a.Fingerprint(), b.Fingerprint())
	require.NotEqual(t, a.Fingerprint(), client(t, Options{URL: address, Model: "m"}).Fingerprint())
	require.NotEqual(t, a.Fingerprint(), client(t, Options{URL: address, DocumentPrefix: "d"}).Fingerprint())
	require.Equal(t, a.Fingerprint(), client(t, Options{URL: address, QueryPrefix: "q"}).Fingerprint(), "documents do not have it")
	f.change = func([][][]float32) any { return "x" }
	_, err := b.Encode(t.Context(), []string{"a"}, true)
	require.ErrorIs(t, err, ErrAnswer)
	require.NotContains(t, err.Error(), "hidden")
	_, err = New(t.Context(), Options{URL: "http://user:hidden@127.0.0.1:1/pooling", Attempts: 1})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hidden")
	// A token of the environment; a wrong one is refused at once.
	f = &fake{token: "secret"}
	address = start(t, f)
	_, err = New(t.Context(), Options{URL: address})
	require.ErrorIs(t, err, ErrStatus)
	require.ErrorContains(t, err, "who are you?")
	t.Setenv(envToken, "secret")
	client(t, Options{URL: address})
	// A server named without a path.
	f = &fake{api: "vllm"}
	client(t, Options{URL: strings.TrimSuffix(start(t, f), "/pooling"), API: "vllm"})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "x": 0, "99999999999999999999": 0,
		"Fri, 01 May 2026 12:00:30 GMT": 30 * time.Second, "Fri, 01 May 2026 11:00:00 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(s, now), s)
	}
}

// FuzzAnswer: whatever a server says, it is vectors of the texts or an error.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"data":[{"embedding":[[1,0,0]]}]}`, `[[[1,0,0]]]`, `{"data":[{"index":0,"data":[[1,2,3]]}]}`, `null`, `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for i := range apis {
			c := &Client{api: &apis[i], dim: 3}
			c.address, _, _ = (&Options{URL: "http://h/pooling"}).resolve()
			v, err := c.parseAnswer(b, 1)
			if err != nil {
				if !errors.Is(err, ErrAnswer) {
					t.Fatal(err)
				}
				continue
			}
			if len(v) != 1 || len(v[0]) == 0 {
				t.Fatal(v)
			}
			for _, x := range v[0] {
				sum := 0.0
				for _, y := range x {
					sum += float64(y) * float64(y)
				}
				if len(x) != 3 || math.Abs(sum-1) > 2e-3 {
					t.Fatal(x)
				}
			}
		}
	})
}
