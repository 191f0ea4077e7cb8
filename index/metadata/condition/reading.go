package condition

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

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

// compact is valid JSON without white space, and without escapes of characters that need none:
// a list has one text, whoever wrote it.
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
			if r, size := unescaped(raw[at:]); size > 0 {
				out = utf8.AppendRune(out, r)
				at += size - 1
				continue
			}
			out = append(out, c)
			at++
		case !quoted && isSpace(c):
			continue
		}
		out = append(out, raw[at])
	}
	return out
}

// unescaped is the character of an escape that needs none, and the size of the escape; 0: there
// is no such escape.
func unescaped(raw []byte) (r rune, size int) {
	if raw[1] == '/' {
		return '/', 2
	}
	if r = escapedUnit(raw); r < ' ' || r == '"' || r == '\\' {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if r = utf16.DecodeRune(r, escapedUnit(raw[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// escapedUnit is the unit of UTF-16 of an escape that raw begins with, -1 if it begins with none.
func escapedUnit(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// unquote is the text of a valid JSON string.
func unquote(e *Evaluation, raw []byte) string {
	return jsontext.Unquote(raw, readStep, func(n int) bool { return !e.ended(n) })
}
