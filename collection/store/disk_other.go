//go:build !unix

package store

// freeBytes is not known on this system.
func freeBytes(string) (bytes uint64, known bool) { return 0, false }
