package condition

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// Record is a document as conditions see it: the object in its payload, its id and its ordinal. A
// payload that is not a JSON object has no fields. It is for one goroutine at a time.
type Record struct {
	id         string
	ordinal    uint32
	fields     object
	parsed     bool
	raw        []byte
	evaluation *Evaluation // the evaluation that reads it
}

// object has the members of a JSON object, ordered by their keys in lower case. Of keys that differ
// only in case, it has the one that sorts last, which is the lower-case one if it exists; of equal
// keys the last.
type object []member

type member struct {
	folded, key string
	raw         []byte

	inner    object // members, if raw is an object; parsed on demand
	parsed   bool   // inner is valid
	value    Value  // parsed on demand
	hasValue bool   // value is valid
}

// Has reports whether the payload has a field, even as null.
func (d *Record) Has(f Field) (found bool) {
	d.visitPath(f.pathString(), func(*member) bool {
		found = true
		return false
	})
	return found
}

// visitPath calls visit with all members at a path of keys with dots in between: through objects,
// arrays of objects, and keys that contain dots. It stops and returns false when visit returns
// false or the evaluation has ended.
func (d *Record) visitPath(path string, visit func(*member) bool) bool {
	return d.object().visitPath(d.evaluation, path, visit)
}

// visitPath tries each dot of the path as the end of a key of this object.
func (o object) visitPath(e *Evaluation, path string, visit func(*member) bool) bool {
	for end := 0; ; end++ { // a dot may separate keys, or be part of a key
		if dot := strings.IndexByte(path[end:], '.'); dot >= 0 {
			end += dot
		} else {
			end = len(path)
		}
		i, exists := o.search(path[:end])
		switch {
		// No key begins with the prefix, so no longer prefix of the path is a key.
		case !exists && (i == len(o) || !strings.HasPrefix(o[i].folded, path[:end])):
			return true
		case !exists: // try a longer key
		case end == len(path):
			return visit(&o[i])
		case !o[i].visitPath(e, path[end+1:], visit):
			return false
		}
		if end == len(path) {
			return true
		}
		if e.endedAfter(1) {
			return false
		}
	}
}

// visitPath continues a path in the objects of the member.
func (m *member) visitPath(e *Evaluation, path string, visit func(*member) bool) bool {
	if m.raw[0] != '[' {
		return m.object(e).visitPath(e, path, visit)
	}
	return visitElements(e, m.raw, func(raw []byte) bool {
		return raw[0] != '{' || readObject(e, raw).visitPath(e, path, visit)
	})
}

// member returns the member of a key in lower case, or nil.
func (o object) member(key string) *member {
	if i, found := o.search(key); found {
		return &o[i]
	}
	return nil
}

// search returns the index of the member of a key in lower case, or the index where it would be.
func (o object) search(key string) (i int, found bool) {
	return slices.BinarySearchFunc(o, key, func(m member, key string) int { return strings.Compare(m.folded, key) })
}

// wholeValue returns the value of the member, an array or object as text.
func (m *member) wholeValue(e *Evaluation) Value {
	if !m.hasValue {
		m.value, m.hasValue = parseValidJSON(e, m.raw), true
	}
	return m.value
}

// object parses the payload on demand. It has no members with the names of the id and the ordinal.
func (d *Record) object() object {
	if !d.parsed {
		d.parsed = true
		if raw := bytes.TrimSpace(d.raw); len(raw) > 0 && raw[0] == '{' && isValidJSON(d.evaluation, raw) {
			d.fields = slices.DeleteFunc(readObject(d.evaluation, raw), func(m member) bool {
				return Field(m.folded) == FieldID || Field(m.folded) == FieldOrdinal
			})
		}
	}
	return d.fields
}

// object parses the member on demand.
func (m *member) object(e *Evaluation) object {
	if !m.parsed {
		m.parsed = true
		if m.raw[0] == '{' {
			m.inner = readObject(e, m.raw)
		}
	}
	return m.inner
}

// readObject parses an object, which must be valid JSON. It returns nil if the evaluation ends.
func readObject(e *Evaluation, raw []byte) object {
	var o object
	offset := skipSpace(raw, 1)
	for raw[offset] != '}' {
		end := valueEnd(e, raw, offset)
		if end == len(raw) {
			return nil
		}
		key := parseValidJSON(e, raw[offset:end]).Text
		offset = skipSpace(raw, skipSpace(raw, end)+1) // the colon
		if end = valueEnd(e, raw, offset); end == len(raw) || e.endedAfter(1) {
			return nil
		}
		o = append(o, member{folded: Fold(key), key: key, raw: raw[offset:end:end]})
		if offset = skipSpace(raw, end); raw[offset] == ',' {
			offset = skipSpace(raw, offset+1)
		}
	}
	slices.SortStableFunc(o, func(a, b member) int {
		if e.endedAfter(1) {
			return 0
		}
		return cmp.Or(strings.Compare(a.folded, b.folded), strings.Compare(a.key, b.key))
	})
	// Keep the last of the members with the same key in lower case.
	kept := o[:0]
	for i := range o {
		if i+1 == len(o) || o[i+1].folded != o[i].folded {
			kept = append(kept, o[i])
		}
	}
	return kept
}

// Fields calls visit with the fields in the payload, in order of the keys, with their values and
// forms. An array has the form [WholeArray], and its elements follow. The fields within an object,
// or within the objects of an array, follow too, up to names of depth keys. It stops and returns
// false when visit returns false or the evaluation has ended. It skips [FieldID] and [FieldOrdinal].
func (d *Record) Fields(depth int, visit func(Field, Value, Form) bool) bool {
	return d.object().visitFields(d.evaluation, "", depth, visit)
}

// visitFields visits the fields of an object at prefix, with at most depth more keys in their
// names.
func (o object) visitFields(e *Evaluation, prefix Field, depth int, visit func(Field, Value, Form) bool) bool {
	for i := range o {
		m := &o[i]
		remainingDepth := depth - 1 - strings.Count(m.folded, ".")
		if remainingDepth < 0 {
			continue
		}
		f := MakeField(m.folded)
		if prefix != "" {
			f = prefix + "." + f
		}
		form := jsonForm(m.raw)
		if m.raw[0] == '[' {
			form = WholeArray
		}
		if v := parseValidJSON(e, m.raw); e.endedAfter(1) || !visit(f, v, form) {
			return false
		}
		switch m.raw[0] {
		case '{':
			if remainingDepth > 0 && !m.object(e).visitFields(e, f, remainingDepth, visit) {
				return false
			}
		case '[':
			visitElement := func(raw []byte) bool {
				if !visit(f, parseValidJSON(e, raw), jsonForm(raw)) {
					return false
				}
				hasFields := remainingDepth > 0 && raw[0] == '{'
				return !hasFields || readObject(e, raw).visitFields(e, f, remainingDepth, visit)
			}
			if !visitElements(e, m.raw, visitElement) {
				return false
			}
		}
	}
	return true
}
