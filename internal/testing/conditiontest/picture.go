package conditiontest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Picture evaluates conditions on documents by the definition of docs/conditions.md: it reads
// payloads with encoding/json, tries all paths, and asks a test of one value after the other. It
// is a [condition.Sets].
type Picture struct {
	T    require.TestingT
	Docs []Doc
}

// Doc is a document of a [Picture].
type Doc struct {
	ID      string
	Ordinal uint32
	Payload []byte
}

// Select are the places of the documents that a condition is true of.
func (p Picture) Select(c *condition.Condition) map[int]bool {
	set, err := condition.Select(context.Background(), c, condition.Sets[map[int]bool](p))
	require.NoError(p.T, err)
	return set
}

// Found is all JSON that a payload has in a field: scalars, objects, and whole arrays.
func Found(payload []byte, f condition.Field) []json.RawMessage {
	payload = bytes.TrimSpace(payload)
	if !json.Valid(payload) || payload[0] != '{' {
		return nil
	}
	return found(payload, strings.Split(strings.Join(f.Keys(), "."), "."), true)
}

func found(object json.RawMessage, parts []string, top bool) (all []json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	for n := 1; n <= len(parts); n++ {
		wanted, best := strings.Join(parts[:n], "."), ""
		there := false
		for key := range members {
			if lower(key) == wanted && (!there || key > best) {
				best, there = key, true
			}
		}
		if !there || top && (wanted == "_id" || wanted == "_subset_") {
			continue
		}
		value := bytes.TrimSpace(members[best])
		var elements []json.RawMessage
		switch {
		case n == len(parts):
			all = append(all, value)
		case value[0] == '{':
			all = append(all, found(value, parts[n:], false)...)
		case json.Unmarshal(value, &elements) == nil:
			for _, e := range elements {
				if e[0] == '{' {
					all = append(all, found(e, parts[n:], false)...)
				}
			}
		}
	}
	return all
}

func lower(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, key)
}

// Literals are what facets count of a field: elements in place of arrays.
func Literals(payload []byte, f condition.Field) (all []json.RawMessage, there bool) {
	for _, value := range Found(payload, f) {
		var elements []json.RawMessage
		if there = true; value[0] == '[' && json.Unmarshal(value, &elements) == nil {
			all = append(all, elements...)
			continue
		}
		all = append(all, value)
	}
	return all, there
}

// truth is the value of a test for a document.
func (p Picture) truth(t *condition.Test, d *Doc) condition.Truth {
	var all []json.RawMessage
	switch t.Field {
	case condition.FieldID:
		return t.Truth(condition.Value{Kind: condition.Text, Text: d.ID})
	case condition.FieldOrdinal:
		return t.Truth(condition.Value{Kind: condition.Integer, Int: int64(d.Ordinal)})
	}
	_, _, ranges := t.Spans(condition.True)
	given := false
	for _, value := range Found(d.Payload, t.Field) {
		given = given || string(value) != "null"
		var elements []json.RawMessage
		if value[0] != '[' {
			all = append(all, value)
			continue
		}
		if !ranges {
			all = append(all, value)
		}
		require.NoError(p.T, json.Unmarshal(value, &elements))
		all = append(all, elements...)
	}
	if !given {
		return t.Truth(condition.Value{})
	}
	most := condition.False
	if t.NeverFalse() {
		most = condition.Unknown
	}
	for _, value := range all {
		v, err := condition.ValueOf(value)
		require.NoError(p.T, err)
		if v.Kind != condition.Null {
			most = max(most, t.Truth(v))
		}
	}
	return most
}

func (p Picture) filter(keep func(i int) bool) map[int]bool {
	set := map[int]bool{}
	for i := range p.Docs {
		if keep(i) {
			set[i] = true
		}
	}
	return set
}

// Test implements [condition.Sets].
func (p Picture) Test(t *condition.Test, is condition.Truth) (map[int]bool, error) {
	return p.filter(func(i int) bool { return p.truth(t, &p.Docs[i]) == is }), nil
}

// All implements [condition.Sets].
func (p Picture) All() map[int]bool { return p.filter(func(int) bool { return true }) }

// None implements [condition.Sets].
func (p Picture) None() map[int]bool { return map[int]bool{} }

// And implements [condition.Sets].
func (p Picture) And(a, b map[int]bool) map[int]bool {
	return p.filter(func(i int) bool { return a[i] && b[i] })
}

// Or implements [condition.Sets].
func (p Picture) Or(a, b map[int]bool) map[int]bool {
	return p.filter(func(i int) bool { return a[i] || b[i] })
}
