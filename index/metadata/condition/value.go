package condition

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// Kind is the kind of a [Value].
type Kind uint8

// The kinds. Every number is less than every text.
const (
	Null Kind = iota
	Integer
	Real
	Text
)

// Value is a value of a field or a parameter, as in SQLite. The zero value is NULL.
type Value struct {
	Kind Kind
	Int  int64   // of an Integer
	Real float64 // of a Real; never NaN or negative zero
	Text string  // of a Text
}

func intValue(i int64) Value   { return Value{Kind: Integer, Int: i} }
func textValue(s string) Value { return Value{Kind: Text, Text: s} }

// realValue returns NULL for NaN, as SQLite does, and 0 for -0.
func realValue(f float64) Value {
	switch {
	case math.IsNaN(f):
		return Value{}
	case f == 0:
		f = 0
	}
	return Value{Kind: Real, Real: f}
}

func boolValue(b bool) Value {
	if b {
		return intValue(1)
	}
	return intValue(0)
}

// IsNumber reports whether the value is a number.
func (v Value) IsNumber() bool { return v.Kind == Integer || v.Kind == Real }

// String returns the text of the value, as SQLite converts it.
func (v Value) String() string {
	switch v.Kind {
	case Integer:
		return strconv.FormatInt(v.Int, 10)
	case Real:
		return formatReal(v.Real)
	}
	return v.Text
}

// Compare orders two values that are not NULL: numbers by size, then texts by bytes.
func (v Value) Compare(w Value) int {
	switch {
	case v.Kind == Text && w.Kind == Text:
		return strings.Compare(v.Text, w.Text)
	case v.Kind == Text:
		return 1
	case w.Kind == Text:
		return -1
	case v.Kind == Integer && w.Kind == Integer:
		return cmp.Compare(v.Int, w.Int)
	case v.Kind == Integer:
		return compareIntReal(v.Int, w.Real)
	case w.Kind == Integer:
		return -compareIntReal(w.Int, v.Real)
	}
	return cmp.Compare(v.Real, w.Real)
}

// compareIntReal compares exactly: a float64 cannot hold every int64.
func compareIntReal(i int64, r float64) int {
	switch {
	case r < -(1 << 63):
		return 1
	case r >= 1<<63:
		return -1
	}
	truncated := int64(r) // towards zero
	if c := cmp.Compare(i, truncated); c != 0 {
		return c
	}
	return cmp.Compare(float64(truncated), r)
}

// asNumber returns the number of a text that looks like one, otherwise the value itself. SQLite
// compares it with a column of numbers.
func (v Value) asNumber() Value {
	if v.Kind != Text {
		return v
	}
	s := strings.Trim(v.Text, " \t\n\v\f\r")
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" || numberLength(digits) != len(digits) {
		return v
	}
	return parseNumber(s)
}

// asText returns the text of a number. SQLite compares it with a column of text.
func (v Value) asText() Value {
	if v.IsNumber() {
		return textValue(v.String())
	}
	return v
}

// parseNumber parses a well-formed number: it returns an Integer if it is written as one and fits.
func parseNumber(s string) Value {
	if !strings.ContainsAny(s, ".eE") {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return intValue(i)
		}
	}
	f, _ := strconv.ParseFloat(s, 64) // out of range: infinity, as in SQLite
	return realValue(f)
}

// formatReal writes 15 digits, without trailing zeros but always with a point, as SQLite's %!.15g
// does.
func formatReal(f float64) string {
	if math.IsInf(f, 0) {
		return strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+")
	}
	if f == 0 {
		return "0.0"
	}
	const digits = 15
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(math.Abs(f), 'e', digits-1, 64), "e")
	exp, _ := strconv.Atoi(exponent) // well-formed: FormatFloat wrote it
	mantissaDigits := strings.Replace(mantissa, ".", "", 1)
	wholeDigits := exp + 1 // digits before the point
	tail := ""
	if exp < -4 || exp >= digits {
		wholeDigits = 1
		tail = fmt.Sprintf("e%+03d", exp)
	}
	if wholeDigits <= 0 {
		mantissaDigits, wholeDigits = strings.Repeat("0", 1-wholeDigits)+mantissaDigits, 1
	}
	fraction := strings.TrimRight(mantissaDigits[wholeDigits:], "0")
	if fraction == "" {
		fraction = "0"
	}
	sign := ""
	if f < 0 {
		sign = "-"
	}
	return sign + mantissaDigits[:wholeDigits] + "." + fraction + tail
}

// MarshalJSON writes the value so that [ValueOf] reads the same value.
func (v Value) MarshalJSON() ([]byte, error) { return v.appendJSON(nil), nil }

func (v Value) appendJSON(dst []byte) []byte {
	switch v.Kind {
	case Integer:
		return strconv.AppendInt(dst, v.Int, 10)
	case Text:
		return appendQuoted(dst, v.Text)
	case Real:
		switch {
		case math.IsInf(v.Real, 1):
			return append(dst, "1e999"...)
		case math.IsInf(v.Real, -1):
			return append(dst, "-1e999"...)
		}
		s := strconv.FormatFloat(v.Real, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return append(dst, s...)
	}
	return append(dst, "null"...)
}

// appendQuoted appends a text as JSON, with <, > and & unescaped.
func appendQuoted(dst []byte, text string) []byte {
	quoted, _ := jsontext.MarshalUnescaped(text) // never fails: every text can be written as JSON
	return append(dst, quoted...)
}

// ValueOf converts a parameter: nil, a bool, any integer or float, a string, [json.Number], or an
// array, map or [json.RawMessage], which become the text of their JSON. A float64 is a real number
// even if it is whole, which matters for comparisons with text ('3.0' is not '3'); decode JSON with
// UseNumber.
func ValueOf(v any) (Value, error) {
	switch v := v.(type) {
	case nil:
		return Value{}, nil
	case Value:
		if v.Kind == Real {
			v = realValue(v.Real)
		}
		return v, nil
	case bool:
		return boolValue(v), nil
	case string:
		return validText(v)
	case json.Number:
		return jsonValue([]byte(v))
	case json.RawMessage:
		return jsonValue(v)
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intValue(r.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if u := r.Uint(); u > math.MaxInt64 {
			return realValue(float64(u)), nil
		}
		return intValue(int64(r.Uint())), nil
	case reflect.Float32, reflect.Float64:
		return realValue(r.Float()), nil
	case reflect.String:
		return validText(r.String())
	case reflect.Slice, reflect.Map:
		b, err := json.Marshal(v)
		if err != nil {
			return Value{}, err
		}
		return jsonValue(b)
	}
	return Value{}, fmt.Errorf("a %T", v)
}

func validText(s string) (Value, error) {
	if !utf8.ValidString(s) {
		return Value{}, fmt.Errorf("text that is not UTF-8")
	}
	return textValue(s), nil
}

// jsonValue returns the value of JSON; an array or object becomes its text without white space.
func jsonValue(raw []byte) (Value, error) {
	if !json.Valid(raw) {
		return Value{}, fmt.Errorf("%q is not JSON", raw)
	}
	return parseValidJSON(nil, bytes.TrimSpace(raw)), nil
}

// parseValidJSON is jsonValue for valid JSON without surrounding white space.
func parseValidJSON(e *Evaluation, raw []byte) Value {
	switch raw[0] {
	case 'n':
		return Value{}
	case 't', 'f':
		return boolValue(raw[0] == 't')
	case '"':
		if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
			return textValue(string(inner))
		}
		return textValue(unquote(e, raw))
	case '[', '{':
		return textValue(strings.ToValidUTF8(string(compactJSON(e, raw)), string(utf8.RuneError)))
	}
	return parseNumber(string(raw))
}
