package resident

// SetFirstBytes sets how many bytes vectors get first, until undo is called.
func SetFirstBytes(n int64) (undo func()) {
	old := firstBytes
	firstBytes = n
	return func() { firstBytes = old }
}
