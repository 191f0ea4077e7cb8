package condition

// Value is the value of a field, if it is one scalar or object, and otherwise that of the first
// that there is.
func (d *Record) Value(f Field) (v Value) {
	switch f {
	case FieldID:
		return textValue(d.id)
	case FieldOrdinal:
		return intValue(int64(d.ordinal))
	}
	d.visitPath(f.pathString(), func(m *member) bool {
		v = m.wholeValue(d.evaluation)
		return false
	})
	return v
}
