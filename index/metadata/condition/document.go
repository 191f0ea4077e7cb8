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
	id      string
	ordinal uint32
	fields  object
	opened  bool
	raw     []byte
	e       *Evaluation // that it is read for
}

// object has the members of a JSON object in the order of their keys in lower case.
// Where keys differ in case only, the one is left that sorts last, which is the one in
// lower case if it is there; of equal keys the last.
type object []member

type member struct {
	folded, key string
	raw         []byte

	inner  object // of an object, once it is asked for
	opened bool
	value  Value // once it is asked for
	valued bool
}

// Has tells whether the payload has a field, be it null.
func (d *Record) Has(f Field) (there bool) {
	d.find(f.path(), func(*member) bool {
		there = true
		return false
	})
	return there
}

// find calls visit with all that a path leads to, which is keys with dots between them:
// through objects, arrays of objects, and keys that have dots themselves. It ends, with
// false, when visit returns false or the evaluation has ended.
func (d *Record) find(path string, visit func(*member) bool) bool {
	return d.object().find(d.e, path, visit)
}

func (o object) find(e *Evaluation, path string, visit func(*member) bool) bool {
	for end := 0; ; end++ { // each dot may be one between keys, or one in a key
		if dot := strings.IndexByte(path[end:], '.'); dot >= 0 {
			end += dot
		} else {
			end = len(path)
		}
		i, there := o.place(path[:end])
		switch {
		case !there && (i == len(o) || !strings.HasPrefix(o[i].folded, path[:end])): // so it is with longer keys
			return true
		case !there:
		case end == len(path):
			return visit(&o[i])
		case !o[i].find(e, path[end+1:], visit):
			return false
		}
		if end == len(path) {
			return true
		}
		if e.ended(1) {
			return false
		}
	}
}

// find goes on from a member.
func (m *member) find(e *Evaluation, path string, visit func(*member) bool) bool {
	if m.raw[0] != '[' {
		return m.object(e).find(e, path, visit)
	}
	return eachElement(e, m.raw, func(raw []byte) bool {
		return raw[0] != '{' || readObject(e, raw).find(e, path, visit)
	})
}

// member is the member of a key in lower case, nil if there is none.
func (o object) member(key string) *member {
	if i, there := o.place(key); there {
		return &o[i]
	}
	return nil
}

// place is where the member of a key in lower case is, or would be.
func (o object) place(key string) (i int, there bool) {
	return slices.BinarySearchFunc(o, key, func(m member, key string) int { return strings.Compare(m.folded, key) })
}

// valueOf is the value of the member as a whole.
func (m *member) valueOf(e *Evaluation) Value {
	if !m.valued {
		m.value, m.valued = validJSON(e, m.raw), true
	}
	return m.value
}

func (d *Record) object() object {
	if !d.opened {
		d.opened = true
		if raw := bytes.TrimSpace(d.raw); len(raw) > 0 && raw[0] == '{' && valid(d.e, raw) {
			d.fields = slices.DeleteFunc(readObject(d.e, raw), func(m member) bool {
				return Field(m.folded) == FieldID || Field(m.folded) == FieldOrdinal
			})
		}
	}
	return d.fields
}

func (m *member) object(e *Evaluation) object {
	if !m.opened {
		m.opened = true
		if m.raw[0] == '{' {
			m.inner = readObject(e, m.raw)
		}
	}
	return m.inner
}

// readObject takes an object apart that is known to be valid JSON.
func readObject(e *Evaluation, raw []byte) object {
	var o object
	at := skipSpace(raw, 1)
	for raw[at] != '}' {
		end := valueEnd(e, raw, at)
		if end == len(raw) {
			return nil
		}
		key := validJSON(e, raw[at:end]).Text
		at = skipSpace(raw, skipSpace(raw, end)+1) // the colon
		if end = valueEnd(e, raw, at); end == len(raw) || e.ended(1) {
			return nil
		}
		o = append(o, member{folded: Fold(key), key: key, raw: raw[at:end:end]})
		if at = skipSpace(raw, end); raw[at] == ',' {
			at = skipSpace(raw, at+1)
		}
	}
	slices.SortStableFunc(o, func(a, b member) int {
		if e.ended(1) {
			return 0
		}
		return cmp.Or(strings.Compare(a.folded, b.folded), strings.Compare(a.key, b.key))
	})
	last := o[:0]
	for i := range o {
		if i+1 == len(o) || o[i+1].folded != o[i].folded {
			last = append(last, o[i])
		}
	}
	return last
}

// Fields calls visit for the fields that are in the payload, in order of the keys, with their
// values and the form of these. An array is [Whole], and is followed by its elements. Of an
// object, and of those in an array, the fields within follow, down to names of depth keys.
// It ends when visit returns false, or the evaluation has ended. [FieldID] and
// [FieldOrdinal] are left out.
func (d *Record) Fields(depth int, visit func(Field, Value, Form) bool) bool {
	return d.object().walk(d.e, "", depth, visit)
}

// walk visits the fields within another one, with at most depth keys more in their names.
func (o object) walk(e *Evaluation, within Field, depth int, visit func(Field, Value, Form) bool) bool {
	for i := range o {
		m := &o[i]
		left := depth - 1 - strings.Count(m.folded, ".")
		if left < 0 {
			continue
		}
		f := MakeField(m.folded)
		if within != "" {
			f = within + "." + f
		}
		form := formOf(m.raw)
		if m.raw[0] == '[' {
			form = Whole
		}
		if v := validJSON(e, m.raw); e.ended(1) || !visit(f, v, form) {
			return false
		}
		switch m.raw[0] {
		case '{':
			if left > 0 && !m.object(e).walk(e, f, left, visit) {
				return false
			}
		case '[':
			within := func(raw []byte) bool {
				return visit(f, validJSON(e, raw), formOf(raw)) &&
					(left == 0 || raw[0] != '{' || readObject(e, raw).walk(e, f, left, visit))
			}
			if !eachElement(e, m.raw, within) {
				return false
			}
		}
	}
	return true
}
