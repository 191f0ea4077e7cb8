package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// The functions here walk JSON text in place. They find structure by hand, since vectors are megabytes
// of numbers. Everything else is validated by encoding/json, which also limits nesting.

// blankCount returns the number of blanks at the beginning of b.
func blankCount(b []byte) int {
	for i, c := range b {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return i
		}
	}
	return len(b)
}

// stringEnd returns the length of the JSON string at the beginning of b, or −1 if it has no end.
func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// valueEnd returns the length of the JSON value at the beginning of b, or −1 if it has no end. It checks
// only the balance of brackets and quotes.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); {
		switch b[i] {
		case '"':
			n := stringEnd(b[i:])
			if n < 0 {
				return -1
			}
			i += n
		case '[', '{':
			depth++
			i++
			continue
		case ']', '}':
			depth--
			if depth < 0 {
				return i
			}
			i++
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
			i++
			continue
		default:
			i++
			if depth > 0 {
				continue
			}
			// A literal ends where a comma, blank or bracket follows.
			for i < len(b) && bytes.IndexByte([]byte(",]} \t\r\n"), b[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

// visitMembers calls visit for every member of the JSON object text, with its raw key and the text from its
// value on. visit returns the length of the value.
func visitMembers(text []byte, visit func(key, value []byte) (int, error)) error {
	i := blankCount(text)
	fault := func(reason string) error {
		return fmt.Errorf("%w: column %d: %s", ErrFormat, i+1, reason)
	}
	if i == len(text) || text[i] != '{' {
		return fault("want a JSON object")
	}
	i++
	for first := true; ; first = false {
		i += blankCount(text[i:])
		if i == len(text) {
			return fault("object without an end")
		}
		if text[i] == '}' && first {
			break
		}
		if text[i] != '"' {
			return fault("want a quoted name")
		}
		// The key and the colon.
		n := stringEnd(text[i:])
		if n < 0 || !json.Valid(text[i:i+n]) {
			return fault("malformed name")
		}
		key := text[i : i+n]
		i += n
		i += blankCount(text[i:])
		if i == len(text) || text[i] != ':' {
			return fault("want a colon")
		}
		i++
		i += blankCount(text[i:])
		// The value, and a comma or the end.
		n, err := visit(key, text[i:])
		if err != nil {
			return err
		}
		if n <= 0 {
			return fault("malformed value")
		}
		i += n
		i += blankCount(text[i:])
		if i == len(text) {
			return fault("object without an end")
		}
		if text[i] == '}' {
			break
		}
		if text[i] != ',' {
			return fault("want a comma or a brace")
		}
		i++
	}
	i++
	if i += blankCount(text[i:]); i != len(text) {
		return fault("text after the object")
	}
	return nil
}

// keyEquals reports whether a raw JSON string is a name.
func keyEquals(key []byte, name string) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key[1:len(key)-1]) == name
	}
	s, err := jsonString(key)
	return err == nil && s == name
}

// integers parses a list of integers in valid JSON. Its result is not nil if the list is empty.
func integers[T int | int64](raw []byte) ([]T, error) {
	if len(raw) < 2 || raw[0] != '[' {
		return nil, fmt.Errorf("%w: %s in the place of a list of integers", ErrFormat, quoteExcerpt(raw))
	}
	list := []T{}
	for unread := raw[1 : len(raw)-1]; ; {
		unread = unread[blankCount(unread):]
		if len(unread) == 0 {
			return list, nil
		}
		n := valueEnd(unread)
		if n < 0 {
			n = len(unread)
		}
		v, err := strconv.ParseInt(string(unread[:n]), 10, int(8*unsafe.Sizeof(T(0))))
		if err != nil {
			return nil, fmt.Errorf("%w: %s in the place of an integer", ErrFormat, quoteExcerpt(unread))
		}
		list = append(list, T(v))
		if unread = unread[n:]; len(unread) > 0 {
			unread = unread[blankCount(unread):]
			unread = bytes.TrimPrefix(unread, []byte{','})
		}
	}
}

// jsonString decodes a string, which must be valid UTF-8 without lone surrogates.
func jsonString(raw []byte) (string, error) {
	if !utf8.Valid(raw) {
		return "", fmt.Errorf("%w: string is not UTF-8", ErrFormat)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("%w: %v", ErrFormat, err)
	}
	if jsontext.LoneSurrogate(raw) >= 0 { // encoding/json would decode all of them to U+FFFD
		return "", fmt.Errorf("%w: string %s has one half of a surrogate pair, which is no character",
			ErrFormat, quoteExcerpt(raw))
	}
	return s, nil
}

// jsonID parses an id: a string, or an integer, whose digits are the id.
func jsonID(raw []byte) (string, error) {
	if len(raw) > 0 && raw[0] == '"' {
		if !utf8.Valid(raw) {
			return "", fmt.Errorf("%w: is not UTF-8", ErrID)
		}
		if jsontext.LoneSurrogate(raw) >= 0 {
			return "", fmt.Errorf("%w: %s has one half of a surrogate pair, which is no character",
				ErrID, quoteExcerpt(raw))
		}
		s, err := jsonString(raw)
		if err != nil {
			return "", err
		}
		return s, CheckID(s)
	}
	if n := numberEnd(raw); n == 0 || n != len(raw) || bytes.ContainsAny(raw, ".eE") {
		return "", fmt.Errorf("%w: %s is neither a string nor an integer", ErrID, quoteExcerpt(raw))
	}
	return string(raw), CheckID(string(raw))
}

// idEquals reports whether raw is the JSON of an id. raw may be nil.
func idEquals(raw []byte, id string) bool {
	if raw == nil {
		return false
	}
	parsed, err := jsonID(raw)
	return err == nil && parsed == id
}

// numberEnd returns the length of the JSON number at the beginning of b, or 0 if b begins otherwise.
func numberEnd(b []byte) int {
	digitsEnd := func(i int) int {
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			i++
		}
		return i
	}
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	start := i
	if i = digitsEnd(i); i == start || i > start+1 && b[start] == '0' { // no leading zeros
		return 0
	}
	if i < len(b) && b[i] == '.' {
		start = i + 1
		if i = digitsEnd(start); i == start {
			return 0
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start = i
		if i = digitsEnd(i); i == start {
			return 0
		}
	}
	return i
}

// quoteExcerpt quotes the beginning of a token for an error.
func quoteExcerpt(b []byte) string {
	if end := bytes.IndexAny(b, ", \t\r\n]}"); end > 0 {
		b = b[:end]
	}
	if len(b) > 40 {
		return strconv.Quote(string(b[:40])) + "…"
	}
	return strconv.Quote(string(b))
}

// walkRows calls visit for every inner array of the [[…], …] at the beginning of b, with the text between
// its brackets. It returns the length of the outer array, and the number of rows.
func walkRows(b []byte, visit func(token int, text []byte) error) (length, rows int, err error) {
	fault := func(reason string) (int, int, error) {
		fe := NewFileError("", fmt.Errorf("%w: vectors: %s", ErrFormat, reason))
		fe.Token = rows
		return 0, 0, fe
	}
	if len(b) == 0 || b[0] != '[' {
		return 0, 0, fmt.Errorf("%w: vectors: want an array of arrays, not %s", ErrFormat, quoteExcerpt(b))
	}
	i := 1
	i += blankCount(b[i:])
	if i < len(b) && b[i] == ']' {
		return i + 1, 0, nil
	}
	for {
		i += blankCount(b[i:])
		if i == len(b) {
			return fault("array without an end")
		}
		if b[i] != '[' {
			return fault("want an array of numbers, not " + quoteExcerpt(b[i:]))
		}
		i++
		n := bytes.IndexByte(b[i:], ']')
		if n < 0 {
			return fault("array without an end")
		}
		if bytes.IndexByte(b[i:i+n], '[') >= 0 {
			return fault("arrays are nested too deep")
		}
		if err := visit(rows, b[i:i+n]); err != nil {
			return 0, 0, err
		}
		rows++
		i += n + 1
		i += blankCount(b[i:])
		switch {
		case i == len(b):
			return fault("array without an end")
		case b[i] == ']':
			return i + 1, rows, nil
		case b[i] != ',':
			return fault("want a comma or a bracket, not " + quoteExcerpt(b[i:]))
		}
		i++
	}
}

// componentCount returns the number of values between the brackets of a row. It counts commas.
func componentCount(text []byte) int {
	if blankCount(text) == len(text) {
		return 0
	}
	return bytes.Count(text, []byte{','}) + 1
}

// parseRow appends the numbers between the brackets of a row.
func parseRow(dst []float32, token int, text []byte) ([]float32, error) {
	component := 0
	fault := func(err error) ([]float32, error) {
		fe := NewFileError("", err)
		fe.Token, fe.Dim = token, component
		return dst, fe
	}
	for i := 0; ; component++ {
		i += blankCount(text[i:])
		n := numberEnd(text[i:])
		if n == 0 {
			word := bytes.TrimLeft(text[i:], "+-")
			if bytes.HasPrefix(word, []byte("NaN")) || bytes.HasPrefix(word, []byte("Inf")) {
				return fault(fmt.Errorf("%w: %s", ErrValue, quoteExcerpt(text[i:])))
			}
			return fault(fmt.Errorf("%w: %s is not a number", ErrFormat, quoteExcerpt(text[i:])))
		}
		v, err := strconv.ParseFloat(string(text[i:i+n]), 32)
		if err != nil {
			return fault(fmt.Errorf("%w: %s does not fit float32", ErrValue, quoteExcerpt(text[i:i+n])))
		}
		dst = append(dst, float32(v))
		i += n
		i += blankCount(text[i:])
		if i == len(text) {
			return dst, nil
		}
		if text[i] != ',' {
			return fault(fmt.Errorf("%w: want a comma, not %s", ErrFormat, quoteExcerpt(text[i:])))
		}
		i++
	}
}
