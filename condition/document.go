package condition

import (
	"bytes"
	"cmp"
	"encoding/json"
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
		m := o.find(key)
		if m == nil {
			return nil
		}
		o = m.object()
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
		if raw := bytes.TrimSpace(d.raw); len(raw) > 0 && raw[0] == '{' && json.Valid(raw) {
			d.fields = readObject(raw)
		}
	}
	return d.fields
}

func (m *member) object() object {
	if !m.opened {
		m.opened = true
		if m.raw[0] == '{' {
			m.inner = readObject(m.raw)
		}
	}
	return m.inner
}

// readObject takes an object apart that is known to be valid JSON.
func readObject(raw []byte) object {
	var o object
	at := skipSpace(raw, 1)
	for raw[at] != '}' {
		end := valueEnd(raw, at)
		key := validJSON(raw[at:end]).Text
		at = skipSpace(raw, skipSpace(raw, end)+1) // the colon
		end = valueEnd(raw, at)
		o = append(o, member{folded: fold(key), key: key, raw: raw[at:end:end]})
		if at = skipSpace(raw, end); raw[at] == ',' {
			at = skipSpace(raw, at+1)
		}
	}
	slices.SortStableFunc(o, func(a, b member) int {
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

func skipSpace(raw []byte, at int) int {
	for raw[at] == ' ' || raw[at] == '\t' || raw[at] == '\n' || raw[at] == '\r' {
		at++
	}
	return at
}

// valueEnd is where the value ends that begins at a place of valid JSON.
func valueEnd(raw []byte, at int) int {
	depth := 0
	for ; ; at++ {
		switch raw[at] {
		case '"':
			for at++; raw[at] != '"'; at++ {
				if raw[at] == '\\' {
					at++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':', ' ', '\t', '\n', '\r':
			continue
		default: // a number or a word
			for at+1 < len(raw) && bytes.IndexByte(delimiters, raw[at+1]) < 0 {
				at++
			}
		}
		if depth == 0 {
			return at + 1
		}
	}
}

var delimiters = []byte(",:]} \t\n\r")

// Fields calls visit for each field that is in the payload, in order of the keys,
// with the kind of value; of an object also for the fields in it, down to so many
// keys. It ends when visit returns false. [FieldID] and [FieldOrdinal] are left out.
func (d *Document) Fields(depth int, visit func(Field, Value) bool) bool {
	return d.object().walk(nil, depth, visit)
}

func (o object) walk(path []string, depth int, visit func(Field, Value) bool) bool {
	for i := range o {
		m := &o[i]
		path := append(path, m.folded)
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
