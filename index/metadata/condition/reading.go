package condition

import (
	"bytes"
	"encoding/json"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// A payload of many megabytes is read in steps, between which the evaluation that it is
// read for looks at its context. Once that has ended what was read means nothing.

// readStep is how many bytes are read between two looks: some tenths of a millisecond.
var readStep = 1 << 16 // a variable, so that tests see many

// valid is [json.Valid].
func valid(e *Evaluation, raw []byte) bool {
	if len(raw) <= 4*readStep || e == nil {
		return json.Valid(raw)
	}
	return jsontext.Valid(raw, readStep, func() bool { return !e.ended(readStep) })
}

// valueEnd is where the value ends that begins at a place of valid JSON; the end of all,
// if the evaluation has ended.
func valueEnd(e *Evaluation, raw []byte, at int) int {
	depth, limit := 0, at+readStep
	for ; ; at++ {
		if at >= limit {
			if limit = at + readStep; e.ended(readStep) {
				return len(raw)
			}
		}
		switch raw[at] {
		case '"':
			for at++; raw[at] != '"'; at++ {
				if raw[at] == '\\' {
					at++
				}
				if at >= limit {
					if limit = at + readStep; e.ended(readStep) {
						return len(raw)
					}
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':', ' ', '\t', '\n', '\r':
			continue
		default: // a number or a word
			for at+1 < len(raw) && bytes.IndexByte(delimiters, raw[at+1]) < 0 {
				at++
			}
		}
		if depth == 0 {
			return at + 1
		}
	}
}

var delimiters = []byte(",:]} \t\n\r")

func skipSpace(raw []byte, at int) int {
	for isSpace(raw[at]) {
		at++
	}
	return at
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// compact is valid JSON without white space.
func compact(e *Evaluation, raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	quoted, limit := false, readStep
	for at := 0; at < len(raw); at++ {
		if at >= limit {
			if limit = at + readStep; e.ended(readStep) {
				return nil
			}
		}
		switch c := raw[at]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			out = append(out, c)
			at++
		case !quoted && isSpace(c):
			continue
		}
		out = append(out, raw[at])
	}
	return out
}

// unquote is the text of a valid JSON string.
func unquote(e *Evaluation, raw []byte) string {
	return jsontext.Unquote(raw, readStep, func(n int) bool { return !e.ended(n) })
}
