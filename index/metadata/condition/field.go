package condition

import "strings"

// Field names a field of a document: the keys that lead to it, with dots between them, in
// the lower case of ASCII. A dot may lead into an object or be part of a key: a name stands
// for both. It is written as in a condition, which has what is not a plain name between two
// dots in double quotes: lang, author.name, "publication date".
type Field string

// The fields that each document has, whatever its payload says.
const (
	// FieldID is the id of the document, a text.
	FieldID Field = "_id"
	// FieldOrdinal is its ordinal, an integer.
	FieldOrdinal Field = "_subset_"
)

// MakeField is the field that keys lead to.
func MakeField(keys ...string) Field {
	if len(keys) == 1 {
		if key := Fold(keys[0]); plainName(key) {
			return Field(key)
		}
	}
	var b strings.Builder
	for i, key := range strings.Split(strings.Join(keys, "."), ".") {
		if i > 0 {
			b.WriteByte('.')
		}
		key = Fold(key)
		if plainName(key) {
			b.WriteString(key)
			continue
		}
		b.WriteByte('"')
		b.WriteString(strings.ReplaceAll(key, `"`, `""`))
		b.WriteByte('"')
	}
	return Field(b.String())
}

// pathString is what is found in documents: the keys with dots between them.
func (f Field) pathString() string {
	if !strings.Contains(string(f), `"`) {
		return string(f)
	}
	return strings.Join(f.Keys(), ".")
}

// Keys are the keys that lead to the field, in lower case, if no key has a dot; the inverse of
// MakeField.
func (f Field) Keys() []string {
	var keys []string
	for s := string(f); ; s = s[1:] {
		var key string
		if strings.HasPrefix(s, `"`) {
			var b strings.Builder
			for s = s[1:]; s != ""; s = s[1:] {
				if s[0] == '"' {
					if !strings.HasPrefix(s, `""`) {
						s = s[1:]
						break
					}
					s = s[1:]
				}
				b.WriteByte(s[0])
			}
			key = b.String()
		} else {
			end := strings.IndexByte(s, '.')
			if end < 0 {
				end = len(s)
			}
			key, s = s[:end], s[end:]
		}
		keys = append(keys, key)
		if s == "" {
			return keys
		}
	}
}

// Fold is the lower case of ASCII, in which names are compared.
func Fold(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				b[j] = lowerASCII(b[j])
			}
			return string(b)
		}
	}
	return s
}

func lowerASCII(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// plainName says that a key needs no quotes.
func plainName(key string) bool {
	if key == "" || isDigit(key[0]) || keywords[strings.ToUpper(key)] {
		return false
	}
	for i := range len(key) {
		if !isNameByte(key[i]) {
			return false
		}
	}
	return true
}
