package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// value is a part of the file with its place.
type value struct {
	field string
	raw   json.RawMessage
}

func (v value) faultf(format string, args ...any) error { return faultf(v.field, format, args...) }

// absent says that the file does not have the value, or has null.
func (v value) absent() bool {
	return len(v.raw) == 0 || string(bytes.TrimSpace(v.raw)) == "null"
}

// shown is the value for an error, cut short.
func (v value) shown() string {
	s := string(bytes.TrimSpace(v.raw))
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return s
}

// into decodes the value, whose kind is named by want.
func (v value) into(dst any, want string) error {
	if v.absent() {
		return v.faultf("is missing, want %s", want)
	}
	if err := json.Unmarshal(v.raw, dst); err != nil {
		return v.faultf("is %s, want %s", v.shown(), want)
	}
	return nil
}

func (v value) str() (s string, err error) {
	err = v.into(&s, "a string")
	return s, err
}

func (v value) bool() (b bool, err error) {
	err = v.into(&b, "true or false")
	return b, err
}

func (v value) int() (n int, err error) {
	err = v.into(&n, "an integer")
	return n, err
}

// id is a number that may be that of a token.
func (v value) id() (int32, error) {
	n, err := v.int()
	if err == nil && (n < 0 || n > maxID) {
		return 0, v.faultf("is %d, want 0 to %d", n, maxID)
	}
	return int32(n), err
}

// boolOr is def where the value is absent.
func (v value) boolOr(def bool) (bool, error) {
	if v.absent() {
		return def, nil
	}
	return v.bool()
}

// strOr is def where the value is absent.
func (v value) strOr(def string) (string, error) {
	if v.absent() {
		return def, nil
	}
	return v.str()
}

func (v value) list() ([]value, error) {
	var raws []json.RawMessage
	if err := v.into(&raws, "a list"); err != nil {
		return nil, err
	}
	list := make([]value, len(raws))
	for i, raw := range raws {
		list[i] = value{fmt.Sprintf("%s[%d]", v.field, i), raw}
	}
	return list, nil
}

// object is an object whose keys must all be asked for.
type object struct {
	value
	m map[string]json.RawMessage
}

func (v value) object() (object, error) {
	o := object{value: v}
	return o, v.into(&o.m, "an object")
}

// get takes the value of a key; it may be absent.
func (o object) get(key string) value {
	v := value{key, o.m[key]}
	if o.field != "" {
		v.field = o.field + "." + key
	}
	delete(o.m, key)
	return v
}

// rest fails if the object has keys that nobody asked for.
func (o object) rest() error {
	if len(o.m) == 0 {
		return nil
	}
	return o.get(slices.Min(slices.Collect(maps.Keys(o.m)))).faultf("is not known")
}

// typed is an object with its key "type".
func (v value) typed() (object, string, error) {
	o, err := v.object()
	if err != nil {
		return o, "", err
	}
	kind, err := o.get("type").str()
	return o, kind, err
}

// unknown is the error for a value of the key "type".
func (o object) unknown(kind string) error {
	return faultf(o.field+".type", "%q is not known", kind)
}

// checkJSON finds what encoding/json would mend quietly: bytes that are not UTF-8, and halves of
// surrogate pairs, which become U+FFFD, so that two pieces may become one.
func checkJSON(b []byte) error {
	if !utf8.Valid(b) {
		return faultf("", "not valid UTF-8")
	}
	if !json.Valid(b) {
		var v any
		return faultf("", "not JSON: %w", json.Unmarshal(b, &v))
	}
	if at := jsontext.LoneSurrogate(b); at >= 0 {
		return faultf("", "byte %d: half of a surrogate pair", at)
	}
	return nil
}
