package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const mediaJSON = "application/json"

// maxAnswer is the largest answer of a service that is read, in bytes.
const maxAnswer = 64 << 20

// Service sends the requests of tools to a service.
type Service struct {
	base   string
	client http.Client
	token  string // "" means that of the agent's own request
}

// NewInProcess returns a service in this process. Requests have the context of the agent's request and, if that
// came over HTTP, its headers Authorization, X-Forwarded-For and X-Request-ID.
func NewInProcess(h http.Handler) *Service {
	return &Service{base: "http://localhost", client: http.Client{Transport: handlerTransport{h}}}
}

// NewRemote returns a service at an address. Requests have a bearer token. "" means none.
func NewRemote(address, token string) (*Service, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("address of the service: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("address of the service: %q is no http:// or https:// address", address)
	}
	s := &Service{base: strings.TrimRight(u.String(), "/"), token: token}
	s.client.Timeout = 5 * time.Minute
	// Follow no redirects: they would send the token elsewhere.
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s, nil
}

// RefusedError is an answer of a service other than 200.
type RefusedError struct {
	Status  int
	Code    string // such as INDEX_NOT_FOUND, or "" if the answer has none
	Message string
}

func (e *RefusedError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("the service answers %d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Code)
}

// Ask sends a request with the token of [NewRemote], with in as its body unless in is nil, and decodes the answer
// into out. If the service refuses the request, the error is a [*RefusedError].
func (s *Service) Ask(ctx context.Context, method, path string, in, out any) error {
	return s.send(ctx, nil, method, path, in, out)
}

// send is Ask with the header of the agent's request, which authorizes a request without a token.
func (s *Service) send(ctx context.Context, header http.Header, method, path string, in, out any) error {
	// The request.
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		r.Header.Set("Content-Type", mediaJSON)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	} else {
		for _, name := range []string{"Authorization", "X-Forwarded-For", "X-Request-Id"} {
			// All lines of each: a proxy may have appended its own to one that the client sent.
			if v := header.Values(name); len(v) > 0 {
				r.Header[name] = slices.Clone(v)
			}
		}
	}

	// The answer.
	answer, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(text) > maxAnswer {
		return fmt.Errorf("the answer of the service has more than %d bytes", maxAnswer)
	}
	if answer.StatusCode != http.StatusOK {
		refused := &RefusedError{Status: answer.StatusCode}
		var problem struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		}
		if json.Unmarshal(text, &problem) == nil {
			refused.Code, refused.Message = problem.Code, problem.Message
		}
		return refused
	}
	return json.Unmarshal(text, out)
}

// handlerTransport is an http.RoundTripper that calls a handler in this process.
type handlerTransport struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t handlerTransport) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.RequestURI = r.URL.RequestURI()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &answerWriter{header: http.Header{}, code: http.StatusOK}
	defer func() {
		if fault := recover(); fault != nil {
			if fault != http.ErrAbortHandler { //nolint:errorlint // by net/http's contract it is this very value
				panic(fault)
			}
			answer, err = nil, errors.Join(errors.New("the service broke its answer off"), r.Context().Err())
		}
	}()
	t.handler.ServeHTTP(w, r)
	return &http.Response{
		StatusCode:    w.code,
		Header:        w.header,
		Body:          io.NopCloser(&w.body),
		Request:       r,
		ContentLength: int64(w.body.Len()),
	}, nil
}

// answerWriter is an http.ResponseWriter that keeps the answer in memory. It has a lock because the library
// may still write to it when the request has ended.
type answerWriter struct {
	header http.Header
	mu     sync.Mutex
	code   int
	begun  bool // the code is final
	body   bytes.Buffer
}

func (w *answerWriter) Header() http.Header { return w.header }

func (w *answerWriter) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun {
		w.code, w.begun = code, true
	}
}

func (w *answerWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	if w.body.Len()+len(p) > maxAnswer {
		return 0, fmt.Errorf("an answer has more than %d bytes", maxAnswer)
	}
	return w.body.Write(p)
}
