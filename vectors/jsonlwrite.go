package vectors

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// JSONLWriter writes documents as lines of JSON that [Open] reads back bit by
// bit: {"id": …, payload fields …, "vectors": [[…], …]}.
type JSONLWriter struct {
	w   *bufio.Writer
	buf []byte
}

// NewJSONLWriter buffers: call Flush at the end.
func NewJSONLWriter(w io.Writer) *JSONLWriter {
	return &JSONLWriter{w: bufio.NewWriterSize(w, 1<<16)}
}

// Write appends a document whose vectors have dim components. A payload that is
// a JSON object lends its fields to the line; any other goes under "payload",
// as JSON if it is, else as a string. NaN and Inf are [ErrValue], tokens that
// are no multiple of dim [ErrShape], a bad id [ErrID], and a payload that is
// not UTF-8 [ErrFormat]; then nothing is written.
func (w *JSONLWriter) Write(doc Document, dim int) error {
	if err := w.encode(doc, dim); err != nil {
		return inFile(err, "", -1, -1, doc.ID)
	}
	_, err := w.w.Write(w.buf)
	return err
}

// Flush writes what is buffered.
func (w *JSONLWriter) Flush() error { return w.w.Flush() }

func (w *JSONLWriter) encode(doc Document, dim int) error {
	if err := CheckID(doc.ID); err != nil {
		return err
	}
	if n := len(doc.Tokens); n > 0 && (dim < 1 || n%dim != 0) {
		return fmt.Errorf("%w: %d values are no multiple of the dimension %d", ErrShape, n, dim)
	}
	if err := checkFinite(doc.Tokens, dim); err != nil {
		return err
	}
	var err error
	if w.buf, err = appendPayload(append(w.buf[:0], '{'), doc); err != nil {
		return err
	}
	b := append(w.buf, `"vectors":[`...)
	for i, v := range doc.Tokens {
		switch {
		case i == 0:
			b = append(b, '[')
		case i%dim == 0:
			b = append(b, "],["...)
		default:
			b = append(b, ',')
		}
		b = appendFloat(b, v)
	}
	if len(doc.Tokens) > 0 {
		b = append(b, ']')
	}
	w.buf = append(b, "]}\n"...)
	return nil
}

// appendFloat appends the shortest decimal that reads back as v. Exponents are
// left to values far from 1, as JSON encoders do.
func appendFloat(b []byte, v float32) []byte {
	format := byte('f')
	if a := math.Abs(float64(v)); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, float64(v), format, -1, 32)
}

// appendPayload appends the fields of a document other than its vectors, each
// with a comma after it. The id goes first unless the payload has it already.
func appendPayload(b []byte, doc Document) ([]byte, error) {
	object, own, err := payloadFields(doc)
	if err != nil {
		return b, err
	}
	if !own {
		name := `"id":`
		if object != nil {
			if id, _ := objectID(object); id != nil {
				name = `"_id":` // it takes precedence over a foreign id in the payload
			}
		}
		b = appendJSONString(append(b, name...), doc.ID)
		b = append(b, ',')
	}
	switch {
	case len(doc.Payload) == 0:
		return b, nil
	case object != nil:
		err := members(object, func(key, rest []byte) (int, error) {
			n := valueEnd(rest)
			if n > 0 && (own || !keyIs(key, "_id")) {
				b = append(append(append(append(b, key...), ':'), rest[:n]...), ',')
			}
			return n, nil
		})
		return b, err
	}
	b = append(b, `"payload":`...)
	if !utf8.Valid(doc.Payload) {
		return b, fmt.Errorf("%w: payload is not UTF-8", ErrFormat)
	}
	if json.Valid(doc.Payload) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, doc.Payload); err != nil {
			return b, err
		}
		return append(append(b, compact.Bytes()...), ','), nil
	}
	return append(appendJSONString(b, string(doc.Payload)), ','), nil
}

// payloadFields is the payload, compacted, if it is an object whose fields can
// join the line: it has no vectors. own is whether its id is the document's.
func payloadFields(doc Document) (object []byte, own bool, err error) {
	p := bytes.TrimLeft(doc.Payload, " \t\r\n")
	if len(p) == 0 || p[0] != '{' || !json.Valid(p) || !utf8.Valid(p) {
		return nil, false, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, p); err != nil {
		return nil, false, err
	}
	object = compact.Bytes()
	taken := false
	err = members(object, func(key, rest []byte) (int, error) {
		taken = taken || keyIs(key, "vectors")
		return valueEnd(rest), nil
	})
	if err != nil || taken {
		return nil, false, err
	}
	raw, err := objectID(object)
	if err != nil || raw == nil {
		return object, false, err
	}
	id, err := jsonID(raw)
	return object, err == nil && id == doc.ID, nil
}

// appendJSONString quotes s, which is of valid UTF-8, without escaping HTML.
func appendJSONString(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // of a string into memory: cannot fail
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...)
}
