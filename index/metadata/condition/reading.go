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

// checkInterval is how many bytes are read between two looks: some tenths of a millisecond.
var checkInterval = 1 << 16 // a variable, so that tests see many

// isValidJSON is [json.Valid].
func isValidJSON(e *Evaluation, raw []byte) bool {
	if len(raw) <= 4*checkInterval || e == nil {
		return json.Valid(raw)
	}
	return jsontext.Valid(raw, checkInterval, func() bool { return !e.stepsEnded(checkInterval) })
}

// valueEnd is where the value ends that begins at a place of valid JSON; the end of all,
// if the evaluation has ended.
func valueEnd(e *Evaluation, raw []byte, offset int) int {
	depth, limit := 0, offset+checkInterval
	for ; ; offset++ {
		if offset >= limit {
			if limit = offset + checkInterval; e.stepsEnded(checkInterval) {
				return len(raw)
			}
		}
		switch raw[offset] {
		case '"':
			for offset++; raw[offset] != '"'; offset++ {
				if raw[offset] == '\\' {
					offset++
				}
				if offset >= limit {
					if limit = offset + checkInterval; e.stepsEnded(checkInterval) {
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
			for offset+1 < len(raw) && bytes.IndexByte(delimiters, raw[offset+1]) < 0 {
				offset++
			}
		}
		if depth == 0 {
			return offset + 1
		}
	}
}

var delimiters = []byte(",:]} \t\n\r")

func skipSpace(raw []byte, offset int) int {
	for isSpace(raw[offset]) {
		offset++
	}
	return offset
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// compactJSON is valid JSON without white space, and without escapes of characters that need none:
// a list has one text, whoever wrote it.
func compactJSON(e *Evaluation, raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	quoted, limit := false, checkInterval
	for offset := 0; offset < len(raw); offset++ {
		if offset >= limit {
			if limit = offset + checkInterval; e.stepsEnded(checkInterval) {
				return nil
			}
		}
		switch c := raw[offset]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			if r, size := unescapeRune(raw[offset:]); size > 0 {
				out = utf8.AppendRune(out, r)
				offset += size - 1
				continue
			}
			out = append(out, c)
			offset++
		case !quoted && isSpace(c):
			continue
		}
		out = append(out, raw[offset])
	}
	return out
}

// unescapeRune is the character of an escape that needs none, and the size of the escape; 0: there
// is no such escape.
func unescapeRune(raw []byte) (r rune, size int) {
	if raw[1] == '/' {
		return '/', 2
	}
	if r = parseUnicodeEscape(raw); r < ' ' || r == '"' || r == '\\' {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if r = utf16.DecodeRune(r, parseUnicodeEscape(raw[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// parseUnicodeEscape is the unit of UTF-16 of an escape that raw begins with, -1 if it begins with none.
func parseUnicodeEscape(raw []byte) rune {
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
	return jsontext.Unquote(raw, checkInterval, func(n int) bool { return !e.stepsEnded(n) })
}
