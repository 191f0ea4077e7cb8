package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxRedirects limits the redirects of a request.
const maxRedirects = 10

// maxWait limits the pause between two attempts, even if the hub requests a longer one.
const maxWait = time.Minute

// errStalled reports that the other end has sent nothing for too long.
var errStalled = errors.New("no answer in time")

// errScheme reports a redirect to an address with another scheme.
var errScheme = errors.New("want http or https")

// answer is the answer of a hub, or of the host that it redirects to.
type answer struct {
	*http.Response
	// first is the header of the hub's own answer. The body may come from another host.
	first http.Header
}

// request sends one request and follows redirects. The token is only sent to the hub. With headOnly, a
// redirect to another host is the answer. The body fails if the other end stalls.
func (h *Hub) request(ctx context.Context, method, address string, header http.Header, headOnly bool) (*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	wait := cmp.Or(h.AnswerTimeout, 10*time.Second)
	timer := time.AfterFunc(wait, func() { cancel(errStalled) })
	a, err := h.follow(ctx, method, address, header, headOnly)
	if err != nil {
		timer.Stop()
		if cause := context.Cause(ctx); errors.Is(cause, errStalled) {
			err = fmt.Errorf("%w (%v)", errStalled, wait)
		}
		cancel(nil)
		return nil, err
	}
	a.Body = &timedBody{a.Body, ctx, timer, cmp.Or(h.ReadTimeout, 10*time.Second), cancel}
	return a, nil
}

// follow is request without time limits.
func (h *Hub) follow(
	ctx context.Context, method, address string, header http.Header, headOnly bool,
) (*answer, error) {
	if e, err := url.Parse(h.Endpoint); err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" {
		return nil, fmt.Errorf("%w: %q", ErrEndpoint, h.Endpoint)
	}
	target, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	home, token := origin(target), h.Token
	keepRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: h.Transport, CheckRedirect: keepRedirect}
	var first http.Header
	for range maxRedirects {
		req, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
		if err != nil {
			return nil, err
		}
		for name, values := range header {
			req.Header[name] = values
		}
		req.Header.Set("User-Agent", "plaid")
		req.Header.Set("Accept-Encoding", "identity") // sizes and ranges are those of the file
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			var ue *url.Error // repeats the address
			if errors.As(err, &ue) {
				err = ue.Err
			}
			return nil, err
		}
		location := resp.Header.Get("Location")
		if resp.StatusCode/100 != 3 || location == "" {
			if first == nil {
				first = resp.Header
			}
			return &answer{resp, first}, nil
		}
		next, err := target.Parse(location)
		if err == nil && next.Scheme != "http" && next.Scheme != "https" {
			err = errScheme
		}
		if err != nil {
			resp.Body.Close()
			return nil, fmt.Errorf("%w: points to %q: %w", ErrAnswer, location, err)
		}
		if origin(next) != home {
			if token = ""; first == nil {
				first = resp.Header // it has hash and size; the header of the other host may not
			}
			if headOnly {
				return &answer{resp, first}, nil
			}
		}
		resp.Body.Close()
		target = next
	}
	return nil, fmt.Errorf("%w: points elsewhere %d times", ErrAnswer, maxRedirects)
}

// origin returns the scheme, host and port of an address. A token is only sent to one origin.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// timedBody is a body whose Read fails if nothing arrives for a time.
type timedBody struct {
	io.ReadCloser
	ctx    context.Context
	timer  *time.Timer
	wait   time.Duration
	cancel context.CancelCauseFunc
}

// Read reads bytes, and fails if none arrive within the time limit.
func (p *timedBody) Read(b []byte) (int, error) {
	p.timer.Reset(p.wait)
	n, err := p.ReadCloser.Read(b)
	p.timer.Stop() // the caller may take long to write the bytes
	if err != nil && err != io.EOF && errors.Is(context.Cause(p.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

// Close closes the body and ends its context.
func (p *timedBody) Close() error {
	p.timer.Stop()
	err := p.ReadCloser.Close()
	p.cancel(nil)
	return err
}

// statusError is an answer with an unexpected status.
type statusError struct {
	err        error
	mayRepeat  bool          // the same request may succeed later
	retryAfter time.Duration // the pause that the hub requests
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// statusToError returns an error for an answer without success. kind is the error of a 404.
func statusToError(a *answer, kind error) error {
	if a.StatusCode/100 == 2 {
		return nil
	}
	code, message := a.Header.Get("X-Error-Code"), a.Header.Get("X-Error-Message")
	fail := func(err error) error {
		return &statusError{err: fmt.Errorf("%w: %s%s", err, a.Status, messageSuffix(message))}
	}
	switch {
	case code == "RevisionNotFound":
		return fail(ErrRevision)
	case code == "EntryNotFound":
		return fail(ErrFile)
	case code == "GatedRepo":
		return fail(ErrGated)
	case code == "RepoNotFound":
		return fail(ErrRepository)
	case a.StatusCode == http.StatusUnauthorized && strings.Contains(message, "Invalid credentials"):
		return fail(ErrToken)
	case a.StatusCode == http.StatusUnauthorized: // the hub does not say whether there is such a model
		return fail(ErrRepository)
	case a.StatusCode == http.StatusForbidden:
		return fail(ErrGated)
	case a.StatusCode == http.StatusNotFound:
		return fail(kind)
	}
	e := fail(ErrStatus).(*statusError)
	s := a.StatusCode
	e.mayRepeat = s == http.StatusTooManyRequests || s == http.StatusRequestTimeout ||
		s >= 500 && s != http.StatusNotImplemented
	if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && n > 0 {
		e.retryAfter = time.Duration(n) * time.Second
	}
	return e
}

// unreachable reports whether an error means that no connection to the hub is possible.
func unreachable(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}

// mayRepeat reports whether the same request may succeed later.
func mayRepeat(err error) bool {
	var s *statusError
	if errors.As(err, &s) {
		return s.mayRepeat
	}
	return !errors.Is(err, ErrEndpoint) && !errors.Is(err, ErrAnswer) &&
		!errors.Is(err, ErrTooLarge) && !errors.Is(err, errLocal)
}

// retryRequest calls send until it succeeds, fails for good, or makes no progress in Attempts calls. send
// reports whether it made progress. subject is a file or model, for the log.
func (h *Hub) retryRequest(ctx context.Context, subject string, send func() (progress bool, err error)) error {
	attempts, backoff := cmp.Or(h.Attempts, 5), cmp.Or(h.Backoff, time.Second)
	wait, everProgressed := backoff, false
	for attempt := 1; ; attempt++ {
		progress, err := send()
		if err == nil || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if progress {
			attempt, wait, everProgressed = 1, backoff, true
		}
		noNetwork := unreachable(err) && !everProgressed // retries would only delay the error
		if !mayRepeat(err) || attempt >= attempts || noNetwork {
			return err
		}
		// Half of the pause is random, so that many clients do not return at the same time.
		pause := time.Duration(float64(wait) * (0.5 + rand.Float64()/2))
		var s *statusError
		if errors.As(err, &s) {
			pause = min(max(pause, s.retryAfter), maxWait)
		}
		h.logger().Warn(fmt.Sprintf("hub: %s: %v; asking again in %v", subject, err, pause.Round(time.Millisecond)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		wait = min(2*wait, maxWait)
	}
}
