// Package remote asks a server for token vectors, by HTTP and JSON.
//
// Three kinds of servers are known by the last part of their addresses:
//
//   - /v1/embeddings, of PyLate: {"input": [texts], "is_query": true, "model": …}
//     gives {"data": [{"embedding": [tokens][dimensions]}, …]};
//   - /pooling, of vLLM: {"input": [texts], "model": …, "task": "token_embed"}
//     gives {"data": [{"index": 0, "data": [tokens][dimensions]}, …]};
//   - /embed_all, of text-embeddings-inference: {"inputs": [texts], "truncate": true}
//     gives [texts][tokens][dimensions].
//
// Only PyLate's knows queries from documents. To the others a role is what
// [Options.QueryPrefix] and [Options.DocumentPrefix] make of it.
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

// Errors; test with errors.Is. All are within an [*Error].
var (
	// ErrOptions: an address or an option that cannot be.
	ErrOptions = errors.New("unusable options of a server")
	// ErrStatus: the server answered with a status that is no success.
	ErrStatus = errors.New("server refused")
	// ErrAnswer: the answer is not one of token vectors, or not that to what was asked.
	ErrAnswer = errors.New("unusable answer")
)

// Error names the server that something went wrong with.
type Error struct {
	URL    string // without a password
	Status int    // of HTTP; 0 if there was no answer
	Err    error
}

// Error reads like: http://localhost:8002/v1/embeddings: server refused: 404 Not Found: no such model.
func (e *Error) Error() string { return e.URL + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Options say which server is asked, and how. Only the URL has to be given.
type Options struct {
	// URL is the whole address, like http://localhost:8002/v1/embeddings. One
	// without a path needs API, and gets the path of that.
	URL string
	// API is pylate, vllm or tei; "": what the path says.
	API string
	// Model is the name of the model, as the server knows it.
	Model string
	// QueryPrefix and DocumentPrefix are put before texts.
	QueryPrefix, DocumentPrefix string
	// Token is sent as Authorization: Bearer; "": that of $PLAID_ENCODER_TOKEN.
	Token string
	// Batch is how many texts a request has at most; 0: 32.
	Batch int
	// Concurrency is how many requests there are at once at most; 0: 4.
	Concurrency int
	// Timeout bounds a request, with its answer; 0: 2 minutes.
	Timeout time.Duration
	// Attempts is how often a request is made at most, where the connection breaks
	// or the server answers 429 or 5xx; 0: 5.
	Attempts int
	// Backoff is the first wait between attempts, which doubles; 0: half a second.
	// A server's Retry-After decides where it is longer.
	Backoff time.Duration
	// MaxWait is the longest wait: a server that asks for more has failed. 0: 1 minute.
	MaxWait time.Duration
	// MaxAnswer bounds the bytes of an answer; 0: 512 MiB.
	MaxAnswer int64
	Logger    *slog.Logger // nil: silent
}

// api is a kind of server.
type api struct {
	name, path string
	body       func(c *Client, texts []string, query bool) any
	// answer reads the vectors of n texts.
	answer func(b []byte, n int) ([][][]float32, error)
}

var apis = []api{
	{"pylate", "/v1/embeddings", func(c *Client, texts []string, query bool) any {
		m := map[string]any{"input": texts, "is_query": query}
		if c.options.Model != "" {
			m["model"] = c.options.Model
		}
		return m
	}, listAnswer},
	{"vllm", "/pooling", func(c *Client, texts []string, _ bool) any {
		m := map[string]any{"input": texts, "task": "token_embed"}
		if c.options.Model != "" {
			m["model"] = c.options.Model
		}
		return m
	}, listAnswer},
	{"tei", "/embed_all", func(_ *Client, texts []string, _ bool) any {
		return map[string]any{"inputs": texts, "truncate": true}
	}, func(b []byte, _ int) (v [][][]float32, err error) { return v, json.Unmarshal(b, &v) }},
}

// listAnswer reads the answers of PyLate and vLLM.
func listAnswer(b []byte, n int) ([][][]float32, error) {
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
		at := i
		if d.Index != nil {
			at = *d.Index
		}
		if at < 0 || at >= n || out[at] != nil {
			return nil, fmt.Errorf("has index %d twice, or beyond the %d texts", at, n)
		}
		if out[at] = d.Embedding; d.Embedding == nil {
			out[at] = d.Data
		}
		if out[at] == nil {
			return nil, fmt.Errorf("has no vectors of text %d", at)
		}
	}
	return out, nil
}

// resolve completes the options, and finds the kind of server.
func (o *Options) resolve() (*url.URL, *api, error) {
	fail := func(format string, args ...any) (*url.URL, *api, error) {
		shown := "address of the server" // what cannot be read may have a password in it
		if u, err := url.Parse(o.URL); err == nil {
			shown = u.Redacted()
		}
		return nil, nil, &Error{URL: shown, Err: fmt.Errorf("%w: %w", ErrOptions, fmt.Errorf(format, args...))}
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return fail("is no URL")
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
		return fail("the path does not tell which API this is: want an address that ends in /v1/embeddings (PyLate), /pooling (vLLM) or /embed_all (TEI)")
	case u.Path == "" || u.Path == "/":
		u.Path = kind.path
	}
	if o.Batch < 0 || o.Concurrency < 0 || o.Timeout < 0 || o.Attempts < 0 || o.Backoff < 0 || o.MaxWait < 0 || o.MaxAnswer < 0 {
		return fail("an option is below zero")
	}
	o.Batch, o.Concurrency, o.Attempts = cmp.Or(o.Batch, 32), cmp.Or(o.Concurrency, 4), cmp.Or(o.Attempts, 5)
	o.Timeout, o.Backoff, o.MaxWait = cmp.Or(o.Timeout, 2*time.Minute), cmp.Or(o.Backoff, time.Second/2), cmp.Or(o.MaxWait, time.Minute)
	o.MaxAnswer, o.Token = cmp.Or(o.MaxAnswer, 512<<20), cmp.Or(o.Token, os.Getenv(envToken))
	if strings.ContainsAny(o.Token, "\r\n") {
		return fail("the token has a line break")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return u, kind, nil
}
