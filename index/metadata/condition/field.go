package condition

import "strings"

// Field names a field of a document: the keys that lead to it, with dots in between, in ASCII lower
// case. A dot may lead into an object or be part of a key: the name means both. Fields are written
// as in conditions: a key that is not a plain name is in double quotes. Examples: lang,
// author.name, "publication date".
type Field string

// The fields that each document has, whatever its payload.
const (
	// FieldID is the id of the document, a text.
	FieldID Field = "_id"
	// FieldOrdinal is its ordinal, an integer.
	FieldOrdinal Field = "_subset_"
)

// MakeField returns the field of keys. A key with dots becomes several keys, since a Field does not
// distinguish them.
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

// pathString returns the keys without quotes, with dots in between, as [Record.visitPath] needs
// them.
func (f Field) pathString() string {
	if !strings.Contains(string(f), `"`) {
		return string(f)
	}
	return strings.Join(f.Keys(), ".")
}

// Keys returns the keys of the field, in lower case, on the assumption that no key has a dot. It is
// the inverse of MakeField.
func (f Field) Keys() []string {
	var keys []string
	for s := string(f); ; s = s[1:] { // without the dot behind the key
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

// Fold returns s in ASCII lower case, in which names are compared.
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

// lowerASCII returns c in lower case.
func lowerASCII(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// plainName reports whether a key needs no quotes.
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
