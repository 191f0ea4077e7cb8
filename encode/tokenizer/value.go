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

// value is a value of the file, with its path there.
type value struct {
	field string
	raw   json.RawMessage
}

func (v value) errorf(format string, args ...any) error { return errorf(v.field, format, args...) }

// absent reports whether the value is missing or null.
func (v value) absent() bool {
	return len(v.raw) == 0 || string(bytes.TrimSpace(v.raw)) == "null"
}

// abbreviated returns the value for an error, at most 60 bytes.
func (v value) abbreviated() string {
	s := string(bytes.TrimSpace(v.raw))
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return s
}

// decode decodes the value into dst. want describes the expected value, for errors.
func (v value) decode(dst any, want string) error {
	if v.absent() {
		return v.errorf("is missing, want %s", want)
	}
	if err := json.Unmarshal(v.raw, dst); err != nil {
		return v.errorf("is %s, want %s", v.abbreviated(), want)
	}
	return nil
}

func (v value) stringValue() (s string, err error) {
	err = v.decode(&s, "a string")
	return s, err
}

func (v value) boolValue() (b bool, err error) {
	err = v.decode(&b, "true or false")
	return b, err
}

func (v value) intValue() (n int, err error) {
	err = v.decode(&n, "an integer")
	return n, err
}

// idValue returns a number that is a possible id.
func (v value) idValue() (int32, error) {
	n, err := v.intValue()
	if err == nil && (n < 0 || n > maxID) {
		return 0, v.errorf("is %d, want 0 to %d", n, maxID)
	}
	return int32(n), err
}

// boolOr returns the value, or defaultValue if it is absent.
func (v value) boolOr(defaultValue bool) (bool, error) {
	if v.absent() {
		return defaultValue, nil
	}
	return v.boolValue()
}

// stringOr returns the value, or defaultValue if it is absent.
func (v value) stringOr(defaultValue string) (string, error) {
	if v.absent() {
		return defaultValue, nil
	}
	return v.stringValue()
}

// listValue returns the elements of a list, with their paths.
func (v value) listValue() ([]value, error) {
	var raws []json.RawMessage
	if err := v.decode(&raws, "a list"); err != nil {
		return nil, err
	}
	list := make([]value, len(raws))
	for i, raw := range raws {
		list[i] = value{fmt.Sprintf("%s[%d]", v.field, i), raw}
	}
	return list, nil
}

// object is a JSON object. Each key must be read once; checkAllRead finds keys that were not.
type object struct {
	value
	m map[string]json.RawMessage
}

func (v value) objectValue() (object, error) {
	o := object{value: v}
	return o, v.decode(&o.m, "an object")
}

// read returns the value of a key, which may be absent, and removes the key.
func (o object) read(key string) value {
	v := value{key, o.m[key]}
	if o.field != "" {
		v.field = o.field + "." + key
	}
	delete(o.m, key)
	return v
}

// checkAllRead returns an error if the object has keys that were not read, since they are unknown.
func (o object) checkAllRead() error {
	if len(o.m) == 0 {
		return nil
	}
	return o.read(slices.Min(slices.Collect(maps.Keys(o.m)))).errorf("is not known")
}

// typedObject returns an object and the value of its key "type".
func (v value) typedObject() (object, string, error) {
	o, err := v.objectValue()
	if err != nil {
		return o, "", err
	}
	kind, err := o.read("type").stringValue()
	return o, kind, err
}

// unknownTypeError returns the error of an unknown value of the key "type".
func (o object) unknownTypeError(kind string) error {
	return errorf(o.field+".type", "%q is not known", kind)
}

// checkJSON returns an error for bytes that are not UTF-8 and halves of surrogate pairs. encoding/json
// would replace both by U+FFFD, so that two pieces could become equal.
func checkJSON(b []byte) error {
	if !utf8.Valid(b) {
		return errorf("", "not valid UTF-8")
	}
	if !json.Valid(b) {
		var v any
		return errorf("", "not JSON: %w", json.Unmarshal(b, &v))
	}
	if offset := jsontext.LoneSurrogate(b); offset >= 0 {
		return errorf("", "byte %d: half of a surrogate pair", offset)
	}
	return nil
}
