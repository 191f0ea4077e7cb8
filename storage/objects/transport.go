package objects

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// transport notes when the service answers, by its clock, and ends requests that stall, which the client then retries.
type transport struct {
	next     http.RoundTripper
	patience time.Duration // longest time without a byte
}

// requestNotes are notes about the requests of one call.
type requestNotes struct {
	requests atomic.Int32              // sent, including retries
	answered atomic.Pointer[time.Time] // last answer, by the clock of the service, nil before the first one
}

type notesKey struct{}

// withNotes returns a context, and the notes about requests with it.
func withNotes(ctx context.Context) (*requestNotes, context.Context) {
	n := &requestNotes{}
	return n, context.WithValue(ctx, notesKey{}, n)
}

// lastAnswer returns the time of the last answer, the zero time if there was none.
func (n *requestNotes) lastAnswer() (date time.Time) {
	if d := n.answered.Load(); d != nil {
		date = *d
	}
	return date
}

// minSendRate is the lowest rate at which a request may be sent, in bytes per second.
const minSendRate = 256 << 10

var errStalled = errors.New("the store stands still")

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	notes, _ := r.Context().Value(notesKey{}).(*requestNotes)
	if notes != nil {
		notes.requests.Add(1)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	sendTime := time.Duration(max(r.ContentLength, 0)/minSendRate) * time.Second
	stallTimer := time.AfterFunc(t.patience+sendTime, func() { cancel(errStalled) })
	answer, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		stallTimer.Stop()
		if context.Cause(ctx) == errStalled {
			err = errStalled
		}
		cancel(nil)
		return answer, err
	}
	if notes != nil {
		if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			notes.answered.Store(&date)
		}
	}
	stallTimer.Stop()
	if answer.StatusCode == http.StatusPreconditionFailed && r.Header.Get("If-None-Match") == "" {
		// The request has no condition that could have failed. Let the client retry it.
		answer.StatusCode = http.StatusServiceUnavailable
	}
	answer.Body = &watchedBody{answer.Body, ctx, stallTimer, t.patience, cancel}
	return answer, nil
}

// watchedBody ends a read that stalls.
type watchedBody struct {
	io.ReadCloser
	ctx        context.Context
	stallTimer *time.Timer
	patience   time.Duration
	cancel     context.CancelCauseFunc
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.stallTimer.Reset(b.patience)
	n, err := b.ReadCloser.Read(p)
	b.stallTimer.Stop()
	if err != nil && err != io.EOF && context.Cause(b.ctx) == errStalled {
		err = errStalled
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
