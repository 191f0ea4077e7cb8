package condition

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// A payload of many megabytes is read in steps. Between them the evaluation checks its context.
// Once that has ended, results are meaningless.

// checkInterval is the number of bytes between two checks of the context: some tenths of a
// millisecond.
var checkInterval = 1 << 16 // a variable, so that tests see many

// isValidJSON does [json.Valid] with checks of the context.
func isValidJSON(e *Evaluation, raw []byte) bool {
	if len(raw) <= 4*checkInterval || e == nil {
		return json.Valid(raw)
	}
	return jsontext.Valid(raw, checkInterval, func() bool { return !e.endedAfter(checkInterval) })
}

// valueEnd returns the end of the value at offset in valid JSON. It returns len(raw) if the
// evaluation has ended.
func valueEnd(e *Evaluation, raw []byte, offset int) int {
	depth := 0                      // of open arrays and objects
	limit := offset + checkInterval // where the context is checked next; endedAfter counts the bytes
	for ; ; offset++ {
		if offset >= limit {
			if limit = offset + checkInterval; e.endedAfter(checkInterval) {
				return len(raw)
			}
		}
		switch raw[offset] {
		case '"': // a text: go to its closing quote
			for offset++; raw[offset] != '"'; offset++ {
				if raw[offset] == '\\' { // the next byte is escaped
					offset++
				}
				if offset >= limit {
					if limit = offset + checkInterval; e.endedAfter(checkInterval) {
						return len(raw)
					}
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':', ' ', '\t', '\n', '\r': // between values
			continue
		default: // a number or a word: go to its last byte
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

// skipSpace returns the offset of the next byte that is not white space.
func skipSpace(raw []byte, offset int) int {
	for isSpace(raw[offset]) {
		offset++
	}
	return offset
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// compactJSON returns valid JSON without white space, and without escapes of characters that need
// none, so that a list has the same text in any spelling. It returns nil if the evaluation has
// ended.
func compactJSON(e *Evaluation, raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	quoted, limit := false, checkInterval // limit: where the context is checked next
	for offset := 0; offset < len(raw); offset++ {
		if offset >= limit {
			if limit = offset + checkInterval; e.endedAfter(checkInterval) {
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

// unescapeRune returns the character of an escape that is not needed, and the size of the escape; 0
// means that raw does not begin with such an escape.
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

// parseUnicodeEscape returns the UTF-16 unit of a \u escape at the beginning of raw, -1 if there is
// none.
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

// unquote returns the text of a valid JSON string.
func unquote(e *Evaluation, raw []byte) string {
	return jsontext.Unquote(raw, checkInterval, func(n int) bool { return !e.endedAfter(n) })
}
