package condition

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// Document is what conditions see of a document: the object in its payload, its id
// and its ordinal. A payload that is no JSON object has no fields. It is for one
// goroutine at a time.
type Document struct {
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

// Value is the value of a field, NULL if the document has none.
func (d *Document) Value(f Field) Value { return d.value(f.Keys()) }

// Has tells whether the payload has a field, be it null.
func (d *Document) Has(f Field) bool { return d.find(f.Keys()) != nil }

func (d *Document) value(keys []string) Value {
	if len(keys) == 1 {
		switch Field(keys[0]) {
		case FieldID:
			return textValue(d.id)
		case FieldOrdinal:
			return intValue(int64(d.ordinal))
		}
	}
	m := d.find(keys)
	if m == nil {
		return Value{}
	}
	if !m.valued {
		m.value, m.valued = validJSON(d.e, m.raw), true
	}
	return m.value
}

// find is the member that keys lead to, nil if there is none.
func (d *Document) find(keys []string) *member {
	o := d.object()
	for _, key := range keys[:len(keys)-1] {
		m := o.find(key)
		if m == nil {
			return nil
		}
		o = m.object(d.e)
	}
	return o.find(keys[len(keys)-1])
}

// find is the member of a key in lower case.
func (o object) find(key string) *member {
	i, ok := slices.BinarySearchFunc(o, key, func(m member, key string) int { return strings.Compare(m.folded, key) })
	if !ok {
		return nil
	}
	return &o[i]
}

func (d *Document) object() object {
	if !d.opened {
		d.opened = true
		if raw := bytes.TrimSpace(d.raw); len(raw) > 0 && raw[0] == '{' && valid(d.e, raw) {
			d.fields = readObject(d.e, raw)
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
		o = append(o, member{folded: fold(key), key: key, raw: raw[at:end:end]})
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

// Fields calls visit for each field that is in the payload, in order of the keys,
// with its value and the form of that; of an object also for the fields in it, down to so many
// keys. It ends when visit returns false, or the evaluation has ended. [FieldID] and [FieldOrdinal] are left out.
func (d *Document) Fields(depth int, visit func(Field, Value, Form) bool) bool {
	return d.object().walk(d.e, nil, depth, visit)
}

func (o object) walk(e *Evaluation, path []string, depth int, visit func(Field, Value, Form) bool) bool {
	for i := range o {
		m := &o[i]
		path := append(path, m.folded)
		f := MakeField(path...)
		if f == FieldID || f == FieldOrdinal {
			continue
		}
		v := validJSON(e, m.raw)
		if e.ended(1) || !visit(f, v, formOf(m.raw)) {
			return false
		}
		if m.raw[0] == '{' && len(path) < depth && !m.object(e).walk(e, path, depth, visit) {
			return false
		}
	}
	return true
}
