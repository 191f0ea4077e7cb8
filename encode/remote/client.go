package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client sends requests to one server. It is safe for concurrent use.
type Client struct {
	options Options
	address *url.URL
	api     *api
	http    *http.Client
	slots   chan struct{} // one element per running request
	dim     int           // 0 until the first answer
}

// New requests the vectors of one word, to learn their dimension and to check that the
// server answers.
func New(ctx context.Context, o Options) (*Client, error) {
	c := &Client{options: o}
	var err error
	if c.address, c.api, err = c.options.resolve(); err != nil {
		return nil, err
	}
	c.slots = make(chan struct{}, c.options.Concurrency)
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = c.options.Concurrency
	// A redirect would lose the body, or send the token to another host.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &http.Client{Transport: t, CheckRedirect: refuse}
	const isQuery = true
	vectors, err := c.Encode(ctx, []string{"dimension"}, isQuery)
	if err != nil {
		return nil, err
	}
	c.dim = len(vectors[0][0])
	return c, nil
}

// Dim returns the dimension of the vectors.
func (c *Client) Dim() int { return c.dim }

// Batch returns the maximum of texts in a request.
func (c *Client) Batch() int { return c.options.Batch }

// Concurrency returns the maximum of concurrent requests.
func (c *Client) Concurrency() int { return c.options.Concurrency }

// URL returns the address of the server, without a password.
func (c *Client) URL() string { return c.address.Redacted() }

// Fingerprint returns a SHA-256 of all that vectors of documents depend on: the address, the
// name of the model, the prefix of documents and the dimension. It does not change if the server
// replaces the model by another of the same name.
func (c *Client) Fingerprint() string {
	bare := *c.address
	bare.User = nil
	settings := []any{"plaid remote 2", bare.String(), c.api.name, c.options.Model, c.options.DocumentPrefix, c.dim}
	b, _ := json.Marshal(settings)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// serverError wraps an error in an [Error] with the server's address.
func (c *Client) serverError(status int, err error) error {
	return &Error{URL: c.URL(), Status: status, Err: err}
}

// Encode returns the unit vectors of texts, at least one for each text. It sends more texts than
// [Client.Batch] in several requests, one after the other.
//
// Errors: [*Error] that wraps [ErrStatus], [ErrAnswer] or an error of the connection;
// those of the context.
func (c *Client) Encode(ctx context.Context, texts []string, query bool) ([][][]float32, error) {
	var out [][][]float32
	for len(texts) > 0 {
		n := min(c.options.Batch, len(texts))
		vectors, err := c.encodeBatch(ctx, texts[:n], query)
		if err != nil {
			return nil, err
		}
		out, texts = append(out, vectors...), texts[n:]
	}
	return out, nil
}

// encodeBatch sends one request, and repeats it after errors that may be temporary.
func (c *Client) encodeBatch(ctx context.Context, texts []string, query bool) ([][][]float32, error) {
	prefix := c.options.DocumentPrefix
	if query {
		prefix = c.options.QueryPrefix
	}
	full := make([]string, len(texts))
	for i, t := range texts {
		full[i] = prefix + t
	}
	body, err := json.Marshal(c.api.body(c, full, query))
	if err != nil {
		return nil, c.serverError(0, err)
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	wait := c.options.Backoff
	for attempt := 1; ; attempt++ {
		answer, minWait, err := c.send(ctx, body)
		if err == nil {
			return c.parseAnswer(answer, len(texts))
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if minWait < 0 || attempt >= c.options.Attempts {
			if attempt > 1 {
				err = fmt.Errorf("after %d attempts: %w", attempt, err)
			}
			return nil, err
		}
		// The pause is 0.5 to 1 times the wait, at random, so that many clients do not return at
		// the same time.
		pause := max(minWait, time.Duration(float64(wait)*(0.5+rand.Float64()/2)))
		if pause > c.options.MaxWait {
			return nil, fmt.Errorf("asks to wait for %v, which is more than %v: %w",
				minWait.Round(time.Second), c.options.MaxWait, err)
		}
		c.options.Logger.Warn("encoder: asking again",
			"url", c.URL(), "attempt", attempt+1, "wait", pause, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		wait = min(2*wait, c.options.MaxWait)
	}
}

// send sends one request. After an error, minWait is the minimum wait
// before another attempt. A negative wait means that another attempt is useless.
func (c *Client) send(ctx context.Context, body []byte) (answer []byte, minWait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, -1, c.serverError(0, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if c.options.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error // repeats the address, with the password
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, 0, c.serverError(0, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		err := c.serverError(resp.StatusCode, fmt.Errorf("%w: %s%s", ErrStatus, resp.Status, messageSuffix(resp.Body)))
		if s := resp.StatusCode; s != http.StatusTooManyRequests && (s < 500 || s == http.StatusNotImplemented) {
			return nil, -1, err
		}
		return nil, retryAfter(resp.Header.Get("Retry-After"), time.Now()), err
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, c.options.MaxAnswer+1))
	if err != nil {
		return nil, 0, c.serverError(resp.StatusCode, fmt.Errorf("answer broke off: %w", err))
	}
	if int64(len(answer)) > c.options.MaxAnswer {
		err := fmt.Errorf("%w: has more than %d bytes: ask for fewer texts at once", ErrAnswer, c.options.MaxAnswer)
		return nil, -1, c.serverError(resp.StatusCode, err)
	}
	return answer, 0, nil
}

// messageSuffix returns the first 500 bytes of a server's message, after a colon and on one line.
func messageSuffix(r io.Reader) string {
	b, _ := io.ReadAll(io.LimitReader(r, 500))
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "?")), " ")
	if s == "" {
		return ""
	}
	return ": " + s
}

// retryAfter parses the header, seconds or a date. 0 means that it is missing or invalid.
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// parseAnswer parses the vectors of an answer, checks them, and scales them to unit length.
func (c *Client) parseAnswer(answer []byte, texts int) ([][][]float32, error) {
	fail := func(format string, args ...any) ([][][]float32, error) {
		return nil, c.serverError(http.StatusOK, fmt.Errorf("%w: %w", ErrAnswer, fmt.Errorf(format, args...)))
	}
	v, err := c.api.parse(answer, texts)
	if err != nil {
		return fail("%w", err)
	}
	if len(v) != texts {
		return fail("has vectors of %d texts, not of %d", len(v), texts)
	}
	dim := c.dim
	for i, doc := range v {
		if len(doc) == 0 {
			return fail("has no vectors of text %d", i)
		}
		for j, x := range doc {
			if dim == 0 {
				dim = len(x)
			}
			if len(x) == 0 || len(x) != dim {
				return fail("vector %d of text %d has %d dimensions, not %d", j, i, len(x), dim)
			}
			if !normalize(x) {
				return fail("vector %d of text %d is zero or not finite", j, i)
			}
		}
	}
	return v, nil
}

// normalize scales a vector to unit length, unless its squared length is within a thousandth of 1. It
// reports whether the vector is finite and not zero.
func normalize(x []float32) bool {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return false
	}
	if math.Abs(sum-1) > 1e-3 {
		length := math.Sqrt(sum)
		for i, v := range x {
			x[i] = float32(float64(v) / length)
		}
	}
	return true
}
