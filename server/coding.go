package server

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
)

const (
	// acceptedCodings are the values of Content-Encoding that bodies may have, as Accept-Encoding lists them.
	acceptedCodings = "gzip, identity"
	// gzipDecoderBytes is about how much memory a decoder takes, apart from the body.
	gzipDecoderBytes = 64 << 10
	// A body may decode to unboundedBytes, and to maxRatio more for each byte that was sent. This bounds
	// uploads, whose only other limit is the disk: gzip can turn one byte into a thousand.
	unboundedBytes = 1 << 20
	maxRatio       = 256
)

// decodeContent sets up the decoding of a body that is compressed, as Content-Encoding says. Limits hold
// both for the body as it was sent and for the decoded one, which may have maxSize bytes.
func (q *request) decodeContent(maxSize int64) *Problem {
	gzipped := 0
	for _, line := range q.Header.Values("Content-Encoding") {
		for name := range strings.SplitSeq(line, ",") {
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "", "identity":
			case "gzip", "x-gzip":
				gzipped++
			default:
				return q.codingProblem("Content-Encoding is %.80q; want "+acceptedCodings+", or none", name)
			}
		}
	}
	switch {
	case gzipped == 0:
		return nil
	case gzipped > 1:
		return q.codingProblem("Content-Encoding has gzip %d times; want one", gzipped)
	}
	if err := q.body.reserve(gzipDecoderBytes); err != nil {
		return problemFromError(q.ctx, err)
	}
	q.ContentLength = -1 // that of the decoded body is not known
	q.Body = http.MaxBytesReader(q.w, &gzipBody{request: q}, maxSize)
	return nil
}

// codingProblem is the answer to a Content-Encoding that is not supported.
func (q *request) codingProblem(format string, args ...any) *Problem {
	q.w.Header().Set("Accept-Encoding", acceptedCodings)
	return problem(CodeMediaType, format, args...)
}

// gzipBody is a body that was sent compressed.
type gzipBody struct {
	request *request
	decoder *gzip.Reader // nil until something is read
	sent    int64        // bytes read of the body as it was sent
	decoded int64        // bytes of the decoded body
	err     error        // of reading the body as it was sent
}

// compressedBody reads the body as it was sent, for the decoder.
type compressedBody struct{ *gzipBody }

// Read implements io.Reader. It counts the bytes, and keeps an error other than io.EOF.
func (w compressedBody) Read(p []byte) (int, error) {
	n, err := w.request.body.Read(p)
	w.sent += int64(n)
	if err != nil && err != io.EOF {
		w.gzipBody.err = err
	}
	return n, err
}

// Read implements io.Reader. It stops when the body becomes too large for the bytes that were sent.
func (g *gzipBody) Read(p []byte) (n int, err error) {
	if g.decoder == nil {
		if g.decoder, err = gzip.NewReader(compressedBody{g}); err != nil {
			g.decoder = nil
			return 0, g.damageError(err)
		}
	}
	n, err = g.decoder.Read(p)
	if g.decoded += int64(n); g.decoded > unboundedBytes+maxRatio*g.sent {
		return n, problem(CodeTooLarge, "the body is more than %d times as large as it was sent (Content-Encoding: "+
			"gzip)", maxRatio)
	}
	if err != nil && (err != io.EOF || g.err != nil) {
		return n, g.damageError(err)
	}
	return n, err
}

// damageError turns an error of decoding into one about the body, unless the body could not be read.
func (g *gzipBody) damageError(err error) error {
	switch {
	case g.err != nil:
		return g.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return badRequest("the body is cut short (Content-Encoding: gzip)")
	case errors.Is(err, gzip.ErrChecksum):
		return badRequest("the body is damaged (Content-Encoding: gzip): its checksum is wrong")
	}
	return badRequest("the body is not gzip, or damaged, although Content-Encoding says so")
}

// Close implements io.Closer.
func (g *gzipBody) Close() error { return g.request.body.Close() }
