package condition

import (
	"bytes"
	"encoding/json"
	"strings"

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
	var all strings.Builder
	for from := 1; from < len(raw)-1; {
		end := pieceEnd(raw, from)
		piece := raw
		if end-from < len(raw)-2 {
			piece = append(append([]byte{'"'}, raw[from:end]...), '"')
		}
		var text string
		_ = json.Unmarshal(piece, &text) // it is valid
		if all.WriteString(text); e.ended(end - from) {
			break
		}
		from = end
	}
	return all.String()
}

// pieceEnd is a place in a string after some bytes, between two characters.
func pieceEnd(raw []byte, from int) int {
	at, high := from, false // high: half of a character is before
	for ; at < len(raw)-1; at++ {
		if c := raw[at]; at-from >= readStep && c&0xc0 != 0x80 && !high {
			break
		}
		if high = false; raw[at] == '\\' {
			if at++; raw[at] == 'u' {
				high = raw[at+1]|0x20 == 'd' && raw[at+2] >= '8'
				at += 4
			}
		}
	}
	return at
}
