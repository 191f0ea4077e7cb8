package runtime

// Waiting is how many requests wait.
func Waiting(d *Device) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue)
}

// Closed reports whether Close has begun.
func Closed(d *Device) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
