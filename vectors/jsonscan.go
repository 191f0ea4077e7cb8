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

// The functions here walk JSON text in place. Structure is found by hand, as
// vectors are megabytes of numbers; everything else is validated by
// encoding/json, which also bounds its nesting.

// blanks is the number of blanks that b begins with.
func blanks(b []byte) int {
	for i, c := range b {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return i
		}
	}
	return len(b)
}

// stringEnd is the length of the JSON string that b begins with, or −1.
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

// valueEnd is the length of the JSON value that b begins with, or −1 if it has
// no end. Only the balance of brackets and quotes is looked at.
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

// members calls value for every member of the object that is all of text,
// with its raw key and the text that begins with its value; value answers
// with the length of that.
func members(text []byte, value func(key, rest []byte) (int, error)) error {
	i := blanks(text)
	fault := func(what string) error {
		return fmt.Errorf("%w: column %d: %s", ErrFormat, i+1, what)
	}
	if i == len(text) || text[i] != '{' {
		return fault("want a JSON object")
	}
	i++
	for first := true; ; first = false {
		i += blanks(text[i:])
		if i == len(text) {
			return fault("object without an end")
		}
		if text[i] == '}' && first {
			break
		}
		if text[i] != '"' {
			return fault("want a quoted name")
		}
		n := stringEnd(text[i:])
		if n < 0 || !json.Valid(text[i:i+n]) {
			return fault("malformed name")
		}
		key := text[i : i+n]
		i += n
		i += blanks(text[i:])
		if i == len(text) || text[i] != ':' {
			return fault("want a colon")
		}
		i++
		i += blanks(text[i:])
		n, err := value(key, text[i:])
		if err != nil {
			return err
		}
		if n <= 0 {
			return fault("malformed value")
		}
		i += n
		i += blanks(text[i:])
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
	if i += blanks(text[i:]); i != len(text) {
		return fault("text after the object")
	}
	return nil
}

// keyIs compares a raw JSON string with a name.
func keyIs(key []byte, name string) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key[1:len(key)-1]) == name
	}
	s, err := jsonString(key)
	return err == nil && s == name
}

// integers decodes a list of integers of valid JSON; it is not nil.
func integers[T int | int64](raw []byte) ([]T, error) {
	if len(raw) < 2 || raw[0] != '[' {
		return nil, fmt.Errorf("%w: %s in the place of a list of integers", ErrFormat, excerpt(raw))
	}
	list := []T{}
	for rest := raw[1 : len(raw)-1]; ; {
		rest = rest[blanks(rest):]
		if len(rest) == 0 {
			return list, nil
		}
		n := valueEnd(rest)
		if n < 0 {
			n = len(rest)
		}
		x, err := strconv.ParseInt(string(rest[:n]), 10, int(8*unsafe.Sizeof(T(0))))
		if err != nil {
			return nil, fmt.Errorf("%w: %s in the place of an integer", ErrFormat, excerpt(rest))
		}
		list = append(list, T(x))
		if rest = rest[n:]; len(rest) > 0 {
			rest = rest[blanks(rest):]
			rest = bytes.TrimPrefix(rest, []byte{','})
		}
	}
}

// jsonString decodes a string, which must be of valid UTF-8.
func jsonString(raw []byte) (string, error) {
	if !utf8.Valid(raw) {
		return "", fmt.Errorf("%w: string is not UTF-8", ErrFormat)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("%w: %v", ErrFormat, err)
	}
	if jsontext.LoneSurrogate(raw) >= 0 { // U+FFFD, as of other halves
		return "", fmt.Errorf("%w: string %s has one half of a surrogate pair, which is no character", ErrFormat, excerpt(raw))
	}
	return s, nil
}

// jsonID reads an id: a string, or an integer, which is taken as its digits.
func jsonID(raw []byte) (string, error) {
	if len(raw) > 0 && raw[0] == '"' {
		if !utf8.Valid(raw) {
			return "", fmt.Errorf("%w: is not UTF-8", ErrID)
		}
		if jsontext.LoneSurrogate(raw) >= 0 {
			return "", fmt.Errorf("%w: %s has one half of a surrogate pair, which is no character", ErrID, excerpt(raw))
		}
		s, err := jsonString(raw)
		if err != nil {
			return "", err
		}
		return s, CheckID(s)
	}
	if n := numberEnd(raw); n == 0 || n != len(raw) || bytes.ContainsAny(raw, ".eE") {
		return "", fmt.Errorf("%w: %s is neither a string nor an integer", ErrID, excerpt(raw))
	}
	return string(raw), CheckID(string(raw))
}

// isID reports whether raw is that id.
func isID(raw []byte, id string) bool {
	if raw == nil {
		return false
	}
	got, err := jsonID(raw)
	return err == nil && got == id
}

// numberEnd is the length of the JSON number that b begins with; 0 is none.
func numberEnd(b []byte) int {
	digits := func(i int) int {
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
	if i = digits(i); i == start || i > start+1 && b[start] == '0' {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		start = i + 1
		if i = digits(start); i == start {
			return 0
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start = i
		if i = digits(i); i == start {
			return 0
		}
	}
	return i
}

// excerpt quotes the beginning of a token for an error.
func excerpt(b []byte) string {
	if end := bytes.IndexAny(b, ", \t\r\n]}"); end > 0 {
		b = b[:end]
	}
	if len(b) > 40 {
		return strconv.Quote(string(b[:40])) + "…"
	}
	return strconv.Quote(string(b))
}

// walkRows calls row for every inner array of a [[…], …] that b begins with,
// with the text between its brackets. It gives the length of the whole and
// the number of rows.
func walkRows(b []byte, row func(token int, text []byte) error) (length, rows int, err error) {
	fault := func(what string) (int, int, error) {
		fe := NewFileError("", fmt.Errorf("%w: vectors: %s", ErrFormat, what))
		fe.Token = rows
		return 0, 0, fe
	}
	if len(b) == 0 || b[0] != '[' {
		return 0, 0, fmt.Errorf("%w: vectors: want an array of arrays, not %s", ErrFormat, excerpt(b))
	}
	i := 1
	i += blanks(b[i:])
	if i < len(b) && b[i] == ']' {
		return i + 1, 0, nil
	}
	for {
		i += blanks(b[i:])
		if i == len(b) {
			return fault("array without an end")
		}
		if b[i] != '[' {
			return fault("want an array of numbers, not " + excerpt(b[i:]))
		}
		i++
		n := bytes.IndexByte(b[i:], ']')
		if n < 0 {
			return fault("array without an end")
		}
		if bytes.IndexByte(b[i:i+n], '[') >= 0 {
			return fault("arrays are nested too deep")
		}
		if err := row(rows, b[i:i+n]); err != nil {
			return 0, 0, err
		}
		rows++
		i += n + 1
		i += blanks(b[i:])
		switch {
		case i == len(b):
			return fault("array without an end")
		case b[i] == ']':
			return i + 1, rows, nil
		case b[i] != ',':
			return fault("want a comma or a bracket, not " + excerpt(b[i:]))
		}
		i++
	}
}

// components is the number of values between the brackets of a row, going by
// its commas.
func components(text []byte) int {
	if blanks(text) == len(text) {
		return 0
	}
	return bytes.Count(text, []byte{','}) + 1
}

// parseRow appends the numbers between the brackets of a row.
func parseRow(dst []float32, token int, text []byte) ([]float32, error) {
	at := 0
	fault := func(err error) ([]float32, error) {
		fe := NewFileError("", err)
		fe.Token, fe.Dim = token, at
		return dst, fe
	}
	for i := 0; ; at++ {
		i += blanks(text[i:])
		n := numberEnd(text[i:])
		if n == 0 {
			if word := bytes.TrimLeft(text[i:], "+-"); len(word) > 0 && (bytes.HasPrefix(word, []byte("NaN")) || bytes.HasPrefix(word, []byte("Inf"))) {
				return fault(fmt.Errorf("%w: %s", ErrValue, excerpt(text[i:])))
			}
			return fault(fmt.Errorf("%w: %s is not a number", ErrFormat, excerpt(text[i:])))
		}
		v, err := strconv.ParseFloat(string(text[i:i+n]), 32)
		if err != nil {
			return fault(fmt.Errorf("%w: %s does not fit float32", ErrValue, excerpt(text[i:i+n])))
		}
		dst = append(dst, float32(v))
		i += n
		i += blanks(text[i:])
		if i == len(text) {
			return dst, nil
		}
		if text[i] != ',' {
			return fault(fmt.Errorf("%w: want a comma, not %s", ErrFormat, excerpt(text[i:])))
		}
		i++
	}
}
