package cluster

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/plaid-ir/plaid/storage"
)

// innerPath is the path at which nodes answer each other: POST innerPath + the name of an operation, with the secret of
// the store as a bearer token. Bodies are JSON. An error is a [failure].
const innerPath = "/cluster/v1/"

const (
	// headerRemaining has the time that the caller will wait, in milliseconds. It is a duration, because the clocks of
	// machines differ.
	headerRemaining = "Plaid-Milliseconds-Left"
	// headerNode has the name of the node that is asked: another node may answer at its address.
	headerNode = "Plaid-Node"

	maxSmallBody = 64 << 20 // bytes of a request such as a batch of queries or a long list of ids
	maxLargeBody = 1 << 30  // bytes of a request with documents; the queue of a shard has room for less
	// maxAnswerBytes limits an answer, maxRunning the concurrent requests of a node, and maxBodyBytes the bodies of
	// these requests together.
	maxAnswerBytes = 512 << 20
	maxRunning     = 4096
	maxBodyBytes   = 2 << 30
	maxRequestTime = 10 * time.Minute
)

// front is the part of a cluster that answers requests: its own, by asking nodes, and those of other nodes.
type front struct {
	peers   peers
	running atomic.Int64 // requests of other nodes
	bytes   atomic.Int64 // bytes of their bodies

	// Guarded by Cluster.mu:
	documents      map[shardKey]uint64       // documents of a shard in its last answer
	rereadAt       map[string]time.Time      // when maps were last read again, by name
	jointSearchers map[string]*jointSearcher // by the id of the collection
}

// operation is something that nodes do for each other.
type operation struct {
	limit  int64                                                           // largest body in bytes
	local  func(ctx context.Context, c *Cluster, in, out any) error        // for a caller in this process
	remote func(ctx context.Context, c *Cluster, body []byte) (any, error) // for a request of another node
}

// newOperation makes an operation of a method of the cluster.
func newOperation[In, Out any](limit int64,
	method func(c *Cluster, ctx context.Context, in *In) (*Out, error)) *operation {
	return &operation{
		limit: limit,
		local: func(ctx context.Context, c *Cluster, in, out any) error {
			result, err := method(c, ctx, in.(*In))
			if err == nil {
				*out.(*Out) = *result
			}
			return err
		},
		remote: func(ctx context.Context, c *Cluster, body []byte) (any, error) {
			in := new(In)
			if err := json.Unmarshal(body, in); err != nil {
				return nil, fmt.Errorf("%w: %w", errMessage, err)
			}
			return method(c, ctx, in)
		},
	}
}

// newShardOperation makes an operation of a method that answers for shards.
func newShardOperation[In, Out any](limit int64,
	method func(*Cluster, context.Context, *shardTarget, *In) (*Out, error)) *operation {
	return newOperation(limit, func(c *Cluster, ctx context.Context, in *request[In]) (*Out, error) {
		if err := in.validate(); err != nil {
			return nil, err
		}
		return method(c, ctx, &in.shardTarget, &in.In)
	})
}

// findOperation returns the operation with a name, nil if it does not exist.
func findOperation(name string) *operation {
	switch name {
	case "search":
		return newShardOperation(maxSmallBody, (*Cluster).doSearch)
	case "documents":
		return newShardOperation(maxSmallBody, (*Cluster).doDocuments)
	case "facets":
		return newShardOperation(maxSmallBody, (*Cluster).doFacets)
	case "words":
		return newShardOperation(maxSmallBody, (*Cluster).doKeywords)
	case "explain":
		return newShardOperation(maxSmallBody, (*Cluster).doExplain)
	case "evidence":
		return newShardOperation(maxSmallBody, (*Cluster).doEvidence)
	case "look", opStats:
		return newShardOperation(maxSmallBody, (*Cluster).doDescribe)
	case "check":
		return newShardOperation(maxLargeBody, (*Cluster).doCheck)
	case "update":
		return newShardOperation(maxLargeBody, (*Cluster).doUpdate)
	case "delete":
		return newShardOperation(maxSmallBody, (*Cluster).doDelete)
	case "metadata":
		return newShardOperation(maxSmallBody, (*Cluster).doMetadata)
	case "hint":
		return newOperation(maxSmallBody, (*Cluster).doHint)
	case "alive":
		return newOperation(maxSmallBody, (*Cluster).doAlive)
	case "news":
		return newOperation(maxSmallBody, (*Cluster).doNews)
	case "status":
		return newOperation(maxSmallBody, (*Cluster).doStatus)
	case "sample":
		return newOperation(maxSmallBody, (*Cluster).doSample)
	}
	return nil
}

// Handler returns the handler for requests of other nodes, at /cluster/v1/.
func (c *Cluster) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := c.serveRequest(w, r)
		status := http.StatusOK
		if err != nil {
			out, status = newFailure(err), httpStatus(err)
		}
		body, err := json.Marshal(out)
		if err != nil { // a number that is not finite
			body, _ = json.Marshal(newFailure(fmt.Errorf("%w: %w", storage.ErrInternal, err)))
			status = http.StatusInternalServerError
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
}

var (
	errSecret  = errors.New("the secret of the object store is needed")
	errNoRoute = errors.New("there is no such operation")
	errMessage = errors.New("a message of another node cannot be read: " +
		"all nodes of a cluster have to run the same version")
	errTooBusy = errors.New("the node has too many requests")
)

// httpStatus returns the HTTP status of an error.
func httpStatus(err error) int {
	for target, status := range map[error]int{
		errSecret: http.StatusUnauthorized, errNoRoute: http.StatusNotFound, errMessage: http.StatusBadRequest,
		errTooBusy: http.StatusServiceUnavailable,
	} {
		if errors.Is(err, target) {
			return status
		}
	}
	return http.StatusUnprocessableEntity
}

// serveRequest carries out a request of another node.
func (c *Cluster) serveRequest(w http.ResponseWriter, r *http.Request) (any, error) {
	// Check the secret, the operation and the node.
	c.mu.Lock()
	secret, closed := c.secret, c.closed
	c.mu.Unlock()
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || secret == "" || subtle.ConstantTimeCompare([]byte(token), []byte(secret)) != 1 {
		return nil, errSecret
	}
	name, ok := strings.CutPrefix(r.URL.Path, innerPath)
	op := findOperation(name)
	if !ok || op == nil || r.Method != http.MethodPost {
		return nil, fmt.Errorf("%w: %s %.100q", errNoRoute, r.Method, r.URL.Path)
	}
	if closed {
		return nil, errNotHere
	}
	// The sender may have a wrong address, or one that belonged to another node before.
	if addressee := r.Header.Get(headerNode); c.node != nil && addressee != c.node.Name {
		return nil, fmt.Errorf("%w: the request is for node %.200q, and this is %s", errNotHere, addressee, c.node.Name)
	}
	// Limit the time and the memory of the request.
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	remaining := maxRequestTime
	if n, err := strconv.ParseInt(r.Header.Get(headerRemaining), 10, 64); err == nil && n >= 0 {
		remaining = min(time.Duration(min(n, maxRequestTime.Milliseconds()))*time.Millisecond, maxRequestTime)
	}
	ctx, stop := context.WithTimeout(ctx, remaining)
	defer stop()
	defer context.AfterFunc(c.ctx, stop)()
	defer c.front.running.Add(-1)
	if c.front.running.Add(1) > maxRunning {
		return nil, errTooBusy
	}
	body, release, err := c.readBody(w, r, op.limit)
	if err != nil {
		return nil, err
	}
	defer release()
	// Carry it out.
	var out any
	err = c.runGuarded(name, func() (err error) {
		out, err = op.remote(ctx, c, body)
		return err
	})
	return out, err
}

// readBody reads a body of a known length. It stays counted until release is called.
func (c *Cluster) readBody(w http.ResponseWriter, r *http.Request,
	limit int64) (body []byte, release func(), err error) {
	n := r.ContentLength
	if n < 0 || n > limit {
		return nil, nil, fmt.Errorf("%w: a body of %d bytes, at most %d are possible", errMessage, n, limit)
	}
	release = func() { c.front.bytes.Add(-n) }
	if c.front.bytes.Add(n) > maxBodyBytes {
		release()
		return nil, nil, errTooBusy
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(maxRequestTime))
	body = make([]byte, n)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		release()
		return nil, nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	return body, release, nil
}

// runGuarded calls run, and turns a panic into an error: it is a fault of one request and must not end the others.
func (c *Cluster) runGuarded(task string, run func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			c.panics.Add(1)
			c.log.Error("a panic", "in", task, "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: a panic in %s: %v", storage.ErrInternal, task, fault)
		}
	}()
	return run()
}
