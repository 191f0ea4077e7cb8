package conditiontest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Evaluator evaluates conditions on documents by the definition in docs/conditions.md: it parses
// payloads with encoding/json, tries all paths, and tests one value after the other. It
// implements [condition.Sets].
type Evaluator struct {
	T    require.TestingT
	Docs []Doc
}

// Doc is a document of an [Evaluator].
type Doc struct {
	ID      string
	Ordinal uint32
	Payload []byte
}

// Select returns the indexes of the documents that a condition is true for.
func (e Evaluator) Select(c *condition.Condition) map[int]bool {
	set, err := condition.Select(context.Background(), c, condition.Sets[map[int]bool](e))
	require.NoError(e.T, err)
	return set
}

// ValuesIn returns all JSON values that a payload has in a field: scalars, objects, and whole arrays.
func ValuesIn(payload []byte, f condition.Field) []json.RawMessage {
	payload = bytes.TrimSpace(payload)
	if !json.Valid(payload) || payload[0] != '{' {
		return nil
	}
	return findValues(payload, strings.Split(strings.Join(f.Keys(), "."), "."), true)
}

// findValues is ValuesIn for an object and the remaining parts of a path. top means the object of the
// payload, whose own fields _id and _subset_ do not count.
func findValues(object json.RawMessage, parts []string, top bool) (values []json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	for n := 1; n <= len(parts); n++ {
		// Of keys that differ in case, the greatest counts.
		wanted, best := strings.Join(parts[:n], "."), ""
		exists := false
		for key := range members {
			if lowerASCII(key) == wanted && (!exists || key > best) {
				best, exists = key, true
			}
		}
		if !exists || top && (wanted == "_id" || wanted == "_subset_") {
			continue
		}
		value := bytes.TrimSpace(members[best])
		var elements []json.RawMessage
		switch {
		case n == len(parts):
			values = append(values, value)
		case value[0] == '{':
			values = append(values, findValues(value, parts[n:], false)...)
		case json.Unmarshal(value, &elements) == nil:
			for _, e := range elements {
				if e[0] == '{' {
					values = append(values, findValues(e, parts[n:], false)...)
				}
			}
		}
	}
	return values
}

// lowerASCII lowers the ASCII letters of a key.
func lowerASCII(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, key)
}

// Literals returns the values that facets count for a field: the elements of arrays, and other values.
// exists reports whether the payload has the field.
func Literals(payload []byte, f condition.Field) (literals []json.RawMessage, exists bool) {
	for _, value := range ValuesIn(payload, f) {
		var elements []json.RawMessage
		if exists = true; value[0] == '[' && json.Unmarshal(value, &elements) == nil {
			literals = append(literals, elements...)
			continue
		}
		literals = append(literals, value)
	}
	return literals, exists
}

// testTruth returns the truth of a test for a document: the greatest truth for any of its values.
func (e Evaluator) testTruth(t *condition.Test, d *Doc) condition.Truth {
	var values []json.RawMessage
	switch t.Field {
	case condition.FieldID:
		return t.Truth(condition.Value{Kind: condition.Text, Text: d.ID})
	case condition.FieldOrdinal:
		return t.Truth(condition.Value{Kind: condition.Integer, Int: int64(d.Ordinal)})
	}
	_, _, ranges := t.Spans(condition.True)
	hasValue := false
	for _, value := range ValuesIn(d.Payload, t.Field) {
		hasValue = hasValue || string(value) != "null"
		var elements []json.RawMessage
		if value[0] != '[' {
			values = append(values, value)
			continue
		}
		if !ranges {
			values = append(values, value)
		}
		require.NoError(e.T, json.Unmarshal(value, &elements))
		values = append(values, elements...)
	}
	if !hasValue {
		return t.Truth(condition.Value{})
	}
	greatest := condition.False
	if t.NeverFalse() {
		greatest = condition.Unknown
	}
	for _, value := range values {
		v, err := condition.ValueOf(value)
		require.NoError(e.T, err)
		if v.Kind != condition.Null {
			greatest = max(greatest, t.Truth(v))
		}
	}
	return greatest
}

// filter returns the indexes of the documents for which keep returns true.
func (e Evaluator) filter(keep func(i int) bool) map[int]bool {
	set := map[int]bool{}
	for i := range e.Docs {
		if keep(i) {
			set[i] = true
		}
	}
	return set
}

// Test implements [condition.Sets].
func (e Evaluator) Test(t *condition.Test, want condition.Truth) (map[int]bool, error) {
	return e.filter(func(i int) bool { return e.testTruth(t, &e.Docs[i]) == want }), nil
}

// All implements [condition.Sets].
func (e Evaluator) All() map[int]bool { return e.filter(func(int) bool { return true }) }

// None implements [condition.Sets].
func (e Evaluator) None() map[int]bool { return map[int]bool{} }

// And implements [condition.Sets].
func (e Evaluator) And(a, b map[int]bool) map[int]bool {
	return e.filter(func(i int) bool { return a[i] && b[i] })
}

// Or implements [condition.Sets].
func (e Evaluator) Or(a, b map[int]bool) map[int]bool {
	return e.filter(func(i int) bool { return a[i] || b[i] })
}
