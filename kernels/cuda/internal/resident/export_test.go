package resident

// SetFirstBytes sets what vectors get first, until what it returns is called.
func SetFirstBytes(n int64) (undo func()) {
	old := firstBytes
	firstBytes = n
	return func() { firstBytes = old }
}
