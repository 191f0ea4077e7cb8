package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// reserveAnswer reserves memory for more bytes of the answer, before they are allocated. All of it is
// released when the request has ended.
func (q *request) reserveAnswer(bytes int) error {
	size, limit := int64(bytes), q.server.options.Limits.Answer
	if size > limit-q.answerBytes {
		return problem(CodeTooLarge, "the answer has more than %d bytes (max-memory): ask for less at a time", limit)
	}
	q.answerBytes += size
	return q.memory.reserve(q.ctx, answerCopies*size)
}

// answerCopies is how often an answer is in memory while it is written: as values and as text.
const answerCopies = 2

// answerJSON sends a value as JSON.
func (q *request) answerJSON(status int, v any) error {
	text, err := toJSON(v)
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}

	// Replace the reservation, which was an estimate, by the size of the text.
	needs := int64(len(text))
	if q.agentCall != nil {
		needs *= agentCopies
	}
	isChange := q.route.group == groupWrite || q.route.group == groupTransfer
	switch missing := needs - q.reservedAnswer(); {
	case missing <= 0:
		q.memory.release(-missing)
	case isChange: // if its answer were refused, the client would repeat the change
		q.memory.reserveAtOnce(missing)
	default:
		if err := q.memory.reserve(q.ctx, missing); err != nil {
			return err
		}
	}
	return q.sendBody(status, mediaJSON, text)
}

// toJSON encodes an answer by its own method toJSON, which is faster, or else by json.Marshal.
func toJSON(v any) ([]byte, error) {
	if a, ok := v.(interface{ toJSON() ([]byte, error) }); ok {
		return a.toJSON()
	}
	return json.Marshal(v)
}

// toJSON returns the same as json.Marshal, but with the metadata last and as it was stored: encoding/json
// would parse and copy all of it, which takes longer than the rest of an answer.
func (out searchOut) toJSON() ([]byte, error) {
	size := 256 // bytes
	for i := range out.Results {
		size += 256 + 64*len(out.Results[i].IDs)
		for _, m := range out.Results[i].Metadata {
			size += len(m) + 1
		}
	}
	text := append(make([]byte, 0, size), `{"results":[`...)
	for i, r := range out.Results {
		metadata := r.Metadata
		r.Metadata = nil // omitted from object
		object, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, object...)
		if metadata == nil {
			continue
		}
		text = append(text[:len(text)-1], `,"metadata":[`...) // in place of the closing brace
		for j, m := range metadata {
			if j > 0 {
				text = append(text, ',')
			}
			text = append(text, m...)
		}
		text = append(text, "]}"...)
	}
	text = append(text, ']')
	out.Results = nil // the other fields follow the results
	rest, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return append(text, bytes.TrimPrefix(rest, []byte(`{"results":null`))...), nil
}

// sendBody sends an answer. It releases the slot first, so that a client that takes its answer slowly
// keeps no other request waiting.
func (q *request) sendBody(status int, media string, text []byte) error {
	q.releaseSlot()
	h := q.w.Header()
	if media != "" {
		h.Set("Content-Type", media)
	}
	h.Set("Content-Length", fmt.Sprint(len(text)))
	h.Set("Server-Timing", q.serverTiming())
	q.w.WriteHeader(status)
	_, _ = q.w.Write(text) // a client that has left needs no answer
	return nil
}

// answerStream is an answer that is sent while it is computed. A short answer is sent at the end, so that an
// error can still be answered by its status; after the beginning of a long one only a broken connection
// tells the client of an error.
type answerStream struct {
	request  *request
	pending  []byte // not sent yet
	reserved int    // bytes of memory for pending
	began    bool   // the beginning was sent
}

// maxPending is how many bytes of a streamed answer wait in memory, before they are sent.
const maxPending = 1 << 20

// newStream returns an empty stream, and reserves its memory.
func (q *request) newStream() (*answerStream, error) {
	return &answerStream{request: q, reserved: maxPending}, q.memory.reserve(q.ctx, answerCopies*maxPending)
}

// appendVectors appends the vectors of one text, which may need more memory than maxPending.
func (s *answerStream) appendVectors(m Matrix, write func(to []byte, m Matrix) []byte) error {
	const maxDigits = 16 // bytes of a number as text, with its comma
	if more := len(s.pending) + maxDigits*len(m.Data) - s.reserved; more > 0 {
		if err := s.request.memory.reserve(s.request.ctx, answerCopies*int64(more)); err != nil {
			return err
		}
		s.reserved += more
	}
	s.pending = write(s.pending, m)
	return nil
}

// flushIfFull sends the pending bytes if they are at least maxPending. Meanwhile the request has no slot;
// then it waits for another one.
func (s *answerStream) flushIfFull() error {
	if len(s.pending) < maxPending {
		return nil
	}
	gate := s.request.groupGate()
	s.request.releaseSlot()
	if err := s.write(); err != nil {
		return err
	}
	return s.request.reacquireSlot(gate)
}

// write sends the pending bytes, and the header before the first ones.
func (s *answerStream) write() error {
	if !s.began {
		s.began = true
		s.request.w.Header().Set("Content-Type", mediaJSON)
		s.request.w.WriteHeader(http.StatusOK)
	}
	_, err := s.request.w.Write(s.pending)
	s.pending = s.pending[:0]
	if err != nil {
		return fmt.Errorf("%w: the client takes no more: %w", context.Canceled, err)
	}
	return nil
}

// finish sends the end of the answer.
func (s *answerStream) finish() error {
	if !s.began {
		return s.request.sendBody(http.StatusOK, mediaJSON, s.pending)
	}
	s.request.releaseSlot()
	return s.write()
}

// responseRecorder records the status and size of an answer for the log, and gives up clients that do not
// take it.
type responseRecorder struct {
	http.ResponseWriter
	statusCode  int // 0 until the header is sent
	bytes       int64
	problemCode Code // "" means success
	aborted     bool // the connection must be broken: the answer is not complete
	clientLeft  bool // before it was known whether the client's change was made

	control    *http.ResponseController
	pace       transferPace
	extendedAt time.Time // of the last call of SetWriteDeadline
}

// extendDeadline gives the client time to take the next bytes. It does nothing if it was called just now,
// since a new deadline may wake a thread. Not every server has deadlines.
func (r *responseRecorder) extendDeadline() {
	if now := r.pace.now(); now.Sub(r.extendedAt) > r.pace.remainingIdle/16 {
		r.extendedAt = now
		_ = r.control.SetWriteDeadline(now.Add(r.pace.remainingIdle))
	}
}

func (r *responseRecorder) status() int { return cmp.Or(r.statusCode, http.StatusOK) }

// WriteHeader implements http.ResponseWriter.
func (r *responseRecorder) WriteHeader(code int) {
	r.statusCode = cmp.Or(r.statusCode, code)
	r.extendDeadline()
	r.ResponseWriter.WriteHeader(code)
}

var errSlowClient = errors.New("the client takes its answer too slowly")

// maxWrite is how many bytes of an answer are written with one deadline.
const maxWrite = 64 << 10

// Write implements http.ResponseWriter. Each maxWrite bytes have a deadline of their own, so a client that
// takes its answer steadily is never cut off, however long that lasts.
func (r *responseRecorder) Write(p []byte) (n int, err error) {
	r.statusCode = r.status()
	for {
		r.extendDeadline()
		began := r.pace.now()
		m, err := r.ResponseWriter.Write(p[n:min(n+maxWrite, len(p))])
		n += m
		r.bytes += int64(m)
		if !r.pace.keepsUp(m, began) && err == nil {
			r.aborted, err = true, errSlowClient
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
