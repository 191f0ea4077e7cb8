// Package remote requests token vectors from a server, by HTTP and JSON.
//
// It supports three kinds of servers, which it distinguishes by the last part of the address:
//
//   - /v1/embeddings, of PyLate: {"input": [texts], "is_query": true, "model": …}
//     returns {"data": [{"embedding": [tokens][dimensions]}, …]};
//   - /pooling, of vLLM: {"input": [texts], "model": …, "task": "token_embed"}
//     returns {"data": [{"index": 0, "data": [tokens][dimensions]}, …]};
//   - /embed_all, of text-embeddings-inference: {"inputs": [texts], "truncate": true}
//     returns [texts][tokens][dimensions].
//
// Only PyLate's server distinguishes queries from documents. For the others, they differ by
// [Options.QueryPrefix] and [Options.DocumentPrefix].
package remote

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"
)

// envToken is the environment variable with the bearer token.
const envToken = "PLAID_ENCODER_TOKEN"

// Errors. Test for them with errors.Is. All are wrapped in an [*Error].
var (
	// ErrOptions reports an invalid address or option.
	ErrOptions = errors.New("unusable options of a server")
	// ErrStatus reports an answer with a status other than success.
	ErrStatus = errors.New("server refused")
	// ErrAnswer reports an answer that does not hold the token vectors of the request.
	ErrAnswer = errors.New("unusable answer")
)

// Error is an error of a server, with its address.
type Error struct {
	URL    string // without a password
	Status int    // of HTTP. 0 means that the server did not answer
	Err    error
}

// Error reads like: http://localhost:8002/v1/embeddings: server refused: 404 Not Found: no such model.
func (e *Error) Error() string { return e.URL + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Options of a client. Only the URL is required.
type Options struct {
	// URL is the whole address, like http://localhost:8002/v1/embeddings. An address
	// without a path requires API, and gets its path.
	URL string
	// API is pylate, vllm or tei. "" means that the path determines it.
	API string
	// Model is the name of the model, as the server knows it.
	Model string
	// QueryPrefix and DocumentPrefix are put before texts.
	QueryPrefix, DocumentPrefix string
	// Token is sent as Authorization: Bearer. "" means that of $PLAID_ENCODER_TOKEN.
	Token string
	// Batch is the maximum of texts in a request. 0 means 32.
	Batch int
	// Concurrency is the maximum of concurrent requests. 0 means 4.
	Concurrency int
	// Timeout limits the time of a request and its answer. 0 means 2 minutes.
	Timeout time.Duration
	// Attempts is how often a request is sent at most, if the connection breaks
	// or the server answers 429 or 5xx. 0 means 5.
	Attempts int
	// Backoff is the first wait between attempts, which doubles. 0 means half a second.
	// A longer Retry-After of the server overrides it.
	Backoff time.Duration
	// MaxWait limits the wait: a request fails if the server demands a longer one. 0 means 1 minute.
	MaxWait time.Duration
	// MaxAnswer limits the bytes of an answer. 0 means 512 MiB.
	MaxAnswer int64
	// Logger may be nil, which means silence.
	Logger *slog.Logger
}

// api is a kind of server.
type api struct {
	name, path string
	// body returns the body of a request, to be encoded as JSON.
	body func(c *Client, texts []string, query bool) any
	// parse returns the vectors of n texts from an answer.
	parse func(b []byte, n int) ([][][]float32, error)
}

var apis = []api{
	{"pylate", "/v1/embeddings", func(c *Client, texts []string, query bool) any {
		m := map[string]any{"input": texts, "is_query": query}
		if c.options.Model != "" {
			m["model"] = c.options.Model
		}
		return m
	}, parseList},
	{"vllm", "/pooling", func(c *Client, texts []string, _ bool) any {
		m := map[string]any{"input": texts, "task": "token_embed"}
		if c.options.Model != "" {
			m["model"] = c.options.Model
		}
		return m
	}, parseList},
	{"tei", "/embed_all", func(_ *Client, texts []string, _ bool) any {
		return map[string]any{"inputs": texts, "truncate": true}
	}, func(b []byte, _ int) (v [][][]float32, err error) { return v, json.Unmarshal(b, &v) }},
}

// parseList parses the answers of PyLate and vLLM.
func parseList(b []byte, n int) ([][][]float32, error) {
	var a struct {
		Data []struct {
			Index     *int        `json:"index"`
			Embedding [][]float32 `json:"embedding"`
			Data      [][]float32 `json:"data"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, err
	}
	if len(a.Data) != n {
		return nil, fmt.Errorf("has vectors of %d texts, not of %d", len(a.Data), n)
	}
	out := make([][][]float32, n)
	for i, d := range a.Data {
		text := i
		if d.Index != nil {
			text = *d.Index
		}
		if text < 0 || text >= n || out[text] != nil {
			return nil, fmt.Errorf("has index %d twice, or beyond the %d texts", text, n)
		}
		if out[text] = d.Embedding; d.Embedding == nil {
			out[text] = d.Data
		}
		if out[text] == nil {
			return nil, fmt.Errorf("has no vectors of text %d", text)
		}
	}
	return out, nil
}

// resolve checks the options, sets defaults, and returns the address and the kind of server.
func (o *Options) resolve() (*url.URL, *api, error) {
	fail := func(format string, args ...any) (*url.URL, *api, error) {
		shown := "address of the server" // an address that cannot be parsed may contain a password
		if u, err := url.Parse(o.URL); err == nil {
			shown = u.Redacted()
		}
		return nil, nil, &Error{URL: shown, Err: fmt.Errorf("%w: %w", ErrOptions, fmt.Errorf(format, args...))}
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return fail("is not a URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fail("want an address that begins with http:// or https:// and a host")
	}
	if u.Fragment != "" {
		return fail("has a fragment, #%s", u.Fragment)
	}
	var kind *api
	for i := range apis {
		a := &apis[i]
		if o.API == a.name || o.API == "" && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), a.path) {
			kind = a
		}
	}
	switch {
	case kind == nil && o.API != "":
		return fail("no API %q: want pylate, vllm or tei", o.API)
	case kind == nil:
		return fail("the path does not tell which API this is: want an address that ends in " +
			"/v1/embeddings (PyLate), /pooling (vLLM) or /embed_all (TEI)")
	case u.Path == "" || u.Path == "/":
		u.Path = kind.path
	}
	if o.Batch < 0 || o.Concurrency < 0 || o.Timeout < 0 || o.Attempts < 0 || o.Backoff < 0 ||
		o.MaxWait < 0 || o.MaxAnswer < 0 {
		return fail("an option is below zero")
	}
	o.Batch, o.Concurrency, o.Attempts = cmp.Or(o.Batch, 32), cmp.Or(o.Concurrency, 4), cmp.Or(o.Attempts, 5)
	o.Timeout, o.Backoff = cmp.Or(o.Timeout, 2*time.Minute), cmp.Or(o.Backoff, time.Second/2)
	o.MaxWait, o.MaxAnswer = cmp.Or(o.MaxWait, time.Minute), cmp.Or(o.MaxAnswer, 512<<20)
	o.Token = cmp.Or(o.Token, os.Getenv(envToken))
	if strings.ContainsAny(o.Token, "\r\n") {
		return fail("the token has a line break")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return u, kind, nil
}
