package condition

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Document is what conditions see of a document: the object in its payload, its id
// and its ordinal. A payload that is no JSON object has no fields. It is for one
// goroutine at a time.
type Document struct {
	id      string
	ordinal uint32
	fields  object
	raw     []byte
}

// object has the members of a JSON object by key.
type object map[string]*member

// member is the value of a key. Where keys differ in case only, the one counts that
// sorts last, which is the one in lower case if it is there.
type member struct {
	key string // as it is written
	raw json.RawMessage

	inner  object // of an object, once it is asked for
	opened bool
}

// NewDocument reads a payload, which is kept and not to be changed.
func NewDocument(payload []byte, id string, ordinal uint32) *Document {
	return &Document{id: id, ordinal: ordinal, raw: payload}
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
	if m := d.find(keys); m != nil {
		return validJSON(m.raw)
	}
	return Value{}
}

// find is the member that keys lead to, nil if there is none.
func (d *Document) find(keys []string) *member {
	o := d.object()
	for _, key := range keys[:len(keys)-1] {
		m := o[key]
		if m == nil {
			return nil
		}
		o = m.object()
	}
	return o[keys[len(keys)-1]]
}

func (d *Document) object() object {
	if d.fields == nil {
		d.fields = readObject(bytes.TrimSpace(d.raw))
	}
	return d.fields
}

func (m *member) object() object {
	if !m.opened {
		m.opened, m.inner = true, readObject(m.raw)
	}
	return m.inner
}

// readObject is never nil.
func readObject(raw []byte) object {
	o := object{}
	if len(raw) == 0 || raw[0] != '{' {
		return o
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return o
	}
	for key, raw := range members {
		folded := fold(key)
		if m := o[folded]; m == nil || m.key < key {
			o[folded] = &member{key: key, raw: raw}
		}
	}
	return o
}

// Fields calls visit for each field that is in the payload, in order of the keys,
// with the kind of value; of an object also for the fields in it, down to so many
// keys. It ends when visit returns false. [FieldID] and [FieldOrdinal] are left out.
func (d *Document) Fields(depth int, visit func(Field, Value) bool) bool {
	return d.object().walk(nil, depth, visit)
}

func (o object) walk(path []string, depth int, visit func(Field, Value) bool) bool {
	keys := make([]string, 0, len(o))
	for key := range o {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		m := o[key]
		path := append(path, key)
		f := MakeField(path...)
		if f == FieldID || f == FieldOrdinal {
			continue
		}
		if !visit(f, validJSON(m.raw)) {
			return false
		}
		if m.raw[0] == '{' && len(path) < depth && !m.object().walk(path, depth, visit) {
			return false
		}
	}
	return true
}
