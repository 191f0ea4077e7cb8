package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/plaid-ir/plaid/collection"
)

// innerClient keeps connections to nodes. It follows no redirects and uses no proxies.
var innerClient = &http.Client{
	Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

var (
	// errUnsent means that a request has not reached the node, so that it has no effect.
	errUnsent = errors.New("the node cannot be reached")
	// errNoAnswer means that a request may have reached the node.
	errNoAnswer = errors.New("the node has not answered")
)

// callNode asks a node, or this process: it posts in as JSON to /cluster/v1/op and decodes the answer into out. Errors
// are those of the operation, as a [failure] carries them, [errUnsent] and [errNoAnswer].
func (c *Cluster) callNode(ctx context.Context, n *Node, op string, in, out any) error {
	if c.isSelf(n) {
		return c.runGuarded(op, func() error { return findOperation(op).local(ctx, c, in, out) })
	}
	r, err := c.newRequest(ctx, n, op, in)
	if err != nil {
		return err
	}
	answer, err := innerClient.Do(r)
	if err != nil {
		kind := errNoAnswer
		dial, ok := errors.AsType[*net.OpError](err)
		notDialed := ok && dial.Op == "dial"
		unknownHost := ctx.Err() == nil && errors.As(err, new(*net.DNSError))
		if notDialed || unknownHost {
			kind = errUnsent
		}
		return fmt.Errorf("%w: node %s: %w", kind, n.Name, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: node %s: %w", errNoAnswer, n.Name, err)
	case len(text) > maxAnswerBytes:
		return fmt.Errorf("%w: node %s answers with more than %d bytes: ask for less at a time", collection.ErrTooLarge,
			n.Name, maxAnswerBytes)
	case answer.StatusCode == http.StatusOK:
		if err := json.Unmarshal(text, out); err != nil { // the operation was done
			return fmt.Errorf("%w: %w: node %s: %w", errNoAnswer, errMessage, n.Name, err)
		}
		return nil
	}
	f := &failure{}
	if json.Unmarshal(text, f) != nil || f.Message == "" {
		return fmt.Errorf("%w: node %s: %s: %.200s", errNoAnswer, n.Name, answer.Status,
			strings.ToValidUTF8(string(text), "?"))
	}
	return f.toError()
}

// newRequest returns the HTTP request of an operation.
func (c *Cluster) newRequest(ctx context.Context, n *Node, op string, in any) (*http.Request, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsent, err)
	}
	if limit := findOperation(op).limit; int64(len(body)) > limit {
		return nil, fmt.Errorf("%w: the request has %d bytes, and at most %d are possible: send less at a time",
			collection.ErrTooLarge, len(body), limit)
	}
	address, err := url.JoinPath(n.Address, innerPath, op)
	if err != nil {
		return nil, fmt.Errorf("%w: node %s: %w", errUnsent, n.Name, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: node %s: %w", errUnsent, n.Name, err)
	}
	c.mu.Lock()
	r.Header.Set("Authorization", "Bearer "+c.secret)
	c.mu.Unlock()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(headerNode, n.Name)
	if deadline, ok := ctx.Deadline(); ok { // the last tenth is for the answer
		r.Header.Set(headerRemaining, strconv.FormatInt(max(time.Until(deadline).Milliseconds()*9/10, 0), 10))
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	return r, nil
}

// backoff returns how long to wait after a try; tries count from 0.
func backoff(try int) time.Duration { return min(10*time.Millisecond<<min(try, 10), time.Second) }

// sleepFor waits for a time, or until ctx ends.
func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
