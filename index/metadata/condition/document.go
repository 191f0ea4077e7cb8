package condition

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// Record is what conditions see of a document: the object in its payload, its id
// and its ordinal. A payload that is no JSON object has no fields. It is for one
// goroutine at a time.
type Record struct {
	id         string
	ordinal    uint32
	fields     object
	parsed     bool
	raw        []byte
	evaluation *Evaluation // that it is read for
}

// object has the members of a JSON object in the order of their keys in lower case.
// Where keys differ in case only, the one is left that sorts last, which is the one in
// lower case if it is there; of equal keys the last.
type object []member

type member struct {
	folded, key string
	raw         []byte

	inner    object // of an object, once it is asked for
	parsed   bool
	value    Value // once it is asked for
	hasValue bool
}

// Has tells whether the payload has a field, be it null.
func (d *Record) Has(f Field) (found bool) {
	d.visitPath(f.pathString(), func(*member) bool {
		found = true
		return false
	})
	return found
}

// visitPath calls visit with all that a path leads to, which is keys with dots between them:
// through objects, arrays of objects, and keys that have dots themselves. It ends, with
// false, when visit returns false or the evaluation has ended.
func (d *Record) visitPath(path string, visit func(*member) bool) bool {
	return d.object().visitPath(d.evaluation, path, visit)
}

func (o object) visitPath(e *Evaluation, path string, visit func(*member) bool) bool {
	for end := 0; ; end++ { // each dot may be one between keys, or one in a key
		if dot := strings.IndexByte(path[end:], '.'); dot >= 0 {
			end += dot
		} else {
			end = len(path)
		}
		i, exists := o.search(path[:end])
		switch {
		case !exists && (i == len(o) || !strings.HasPrefix(o[i].folded, path[:end])): // so it is with longer keys
			return true
		case !exists:
		case end == len(path):
			return visit(&o[i])
		case !o[i].visitPath(e, path[end+1:], visit):
			return false
		}
		if end == len(path) {
			return true
		}
		if e.stepsEnded(1) {
			return false
		}
	}
}

// visitPath goes on from a member.
func (m *member) visitPath(e *Evaluation, path string, visit func(*member) bool) bool {
	if m.raw[0] != '[' {
		return m.object(e).visitPath(e, path, visit)
	}
	return visitElements(e, m.raw, func(raw []byte) bool {
		return raw[0] != '{' || readObject(e, raw).visitPath(e, path, visit)
	})
}

// member is the member of a key in lower case, nil if there is none.
func (o object) member(key string) *member {
	if i, there := o.search(key); there {
		return &o[i]
	}
	return nil
}

// search is where the member of a key in lower case is, or would be.
func (o object) search(key string) (i int, there bool) {
	return slices.BinarySearchFunc(o, key, func(m member, key string) int { return strings.Compare(m.folded, key) })
}

// wholeValue is the value of the member as a whole.
func (m *member) wholeValue(e *Evaluation) Value {
	if !m.hasValue {
		m.value, m.hasValue = parseValidJSON(e, m.raw), true
	}
	return m.value
}

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

func (m *member) object(e *Evaluation) object {
	if !m.parsed {
		m.parsed = true
		if m.raw[0] == '{' {
			m.inner = readObject(e, m.raw)
		}
	}
	return m.inner
}

// readObject takes an object apart that is known to be valid JSON.
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
		if end = valueEnd(e, raw, offset); end == len(raw) || e.stepsEnded(1) {
			return nil
		}
		o = append(o, member{folded: Fold(key), key: key, raw: raw[offset:end:end]})
		if offset = skipSpace(raw, end); raw[offset] == ',' {
			offset = skipSpace(raw, offset+1)
		}
	}
	slices.SortStableFunc(o, func(a, b member) int {
		if e.stepsEnded(1) {
			return 0
		}
		return cmp.Or(strings.Compare(a.folded, b.folded), strings.Compare(a.key, b.key))
	})
	kept := o[:0]
	for i := range o {
		if i+1 == len(o) || o[i+1].folded != o[i].folded {
			kept = append(kept, o[i])
		}
	}
	return kept
}

// Fields calls visit for the fields that are in the payload, in order of the keys, with their
// values and the form of these. An array is [Whole], and is followed by its elements. Of an
// object, and of those in an array, the fields within follow, down to names of depth keys.
// It ends when visit returns false, or the evaluation has ended. [FieldID] and
// [FieldOrdinal] are left out.
func (d *Record) Fields(depth int, visit func(Field, Value, Form) bool) bool {
	return d.object().visitFields(d.evaluation, "", depth, visit)
}

// visitFields visits the fields within another one, with at most depth keys more in their names.
func (o object) visitFields(e *Evaluation, prefix Field, depth int, visit func(Field, Value, Form) bool) bool {
	for i := range o {
		m := &o[i]
		depthLeft := depth - 1 - strings.Count(m.folded, ".")
		if depthLeft < 0 {
			continue
		}
		f := MakeField(m.folded)
		if prefix != "" {
			f = prefix + "." + f
		}
		form := jsonForm(m.raw)
		if m.raw[0] == '[' {
			form = Whole
		}
		if v := parseValidJSON(e, m.raw); e.stepsEnded(1) || !visit(f, v, form) {
			return false
		}
		switch m.raw[0] {
		case '{':
			if depthLeft > 0 && !m.object(e).visitFields(e, f, depthLeft, visit) {
				return false
			}
		case '[':
			visitElement := func(raw []byte) bool {
				return visit(f, parseValidJSON(e, raw), jsonForm(raw)) &&
					(depthLeft == 0 || raw[0] != '{' || readObject(e, raw).visitFields(e, f, depthLeft, visit))
			}
			if !visitElements(e, m.raw, visitElement) {
				return false
			}
		}
	}
	return true
}
