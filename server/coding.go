package server

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
)

const (
	// takenCodings are the values of Content-Encoding that bodies may have, as Accept-Encoding lists them.
	takenCodings = "gzip, identity"
	// gunzipBytes is about how much memory a decoder takes, apart from the body.
	gunzipBytes = 64 << 10
	// A body may decode to freeBytes, and to maxRatio bytes more for each byte that was sent. This bounds
	// uploads, whose only other limit is the disk: gzip can make a thousand bytes of one.
	freeBytes = 1 << 20
	maxRatio  = 256
)

// openCoding decodes the body as Content-Encoding says. Both the decoded body and the one that was sent
// are limited and counted.
func (q *request) openCoding(size int64) *Problem {
	gzipped := 0
	for _, line := range q.Header.Values("Content-Encoding") {
		for name := range strings.SplitSeq(line, ",") {
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "", "identity":
			case "gzip", "x-gzip":
				gzipped++
			default:
				return q.badCoding("Content-Encoding is %.80q; want "+takenCodings+", or none", name)
			}
		}
	}
	switch {
	case gzipped == 0:
		return nil
	case gzipped > 1:
		return q.badCoding("Content-Encoding has gzip %d times; want one", gzipped)
	}
	if err := q.body.hold(gunzipBytes); err != nil {
		return known(q.ctx, err)
	}
	q.ContentLength = -1 // of the decoded body
	q.Body = http.MaxBytesReader(q.w, &gunzipped{q: q}, size)
	return nil
}

func (q *request) badCoding(format string, args ...any) *Problem {
	q.w.Header().Set("Accept-Encoding", takenCodings)
	return problem(CodeMediaType, format, args...)
}

// gunzipped is a body that was sent compressed.
type gunzipped struct {
	q    *request
	gzip *gzip.Reader // nil until something is read
	sent int64        // bytes read of the body as it was sent
	out  int64        // bytes that came out
	err  error        // why the body as it was sent cannot be read
}

// wire is the body as it was sent.
type wire struct{ *gunzipped }

func (w wire) Read(p []byte) (int, error) {
	n, err := w.q.body.Read(p)
	w.sent += int64(n)
	if err != nil && err != io.EOF {
		w.gunzipped.err = err
	}
	return n, err
}

func (g *gunzipped) Read(p []byte) (n int, err error) {
	if g.gzip == nil {
		if g.gzip, err = gzip.NewReader(wire{g}); err != nil {
			g.gzip = nil
			return 0, g.problem(err)
		}
	}
	n, err = g.gzip.Read(p)
	if g.out += int64(n); g.out > freeBytes+maxRatio*g.sent {
		return n, problem(CodeTooLarge, "the body is more than %d times as large as it was sent (Content-Encoding: gzip)", maxRatio)
	}
	if err != nil && (err != io.EOF || g.err != nil) {
		return n, g.problem(err)
	}
	return n, err
}

// problem tells a damaged body from one that cannot be read.
func (g *gunzipped) problem(err error) error {
	switch {
	case g.err != nil:
		return g.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return bad("the body is cut short (Content-Encoding: gzip)")
	case errors.Is(err, gzip.ErrChecksum):
		return bad("the body is damaged (Content-Encoding: gzip): its checksum is wrong")
	}
	return bad("the body is not gzip, or damaged, although Content-Encoding says so")
}

// Close implements io.Closer.
func (g *gunzipped) Close() error { return g.q.body.Close() }
