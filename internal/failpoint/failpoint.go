// Package failpoint lets tests stand in for a disk whose last answer is an
// error: what was written can be seen, but nobody knows whether it is kept. No
// file system that a test can have gives that on demand.
package failpoint

// Synced, where a test sets it, is asked after each sync that ends a change, of
// a file or of the folder that holds it. An error takes the place of the sync's
// own answer. It is not to be changed while a change is under way.
var Synced func(path string) error

// AfterSync is Synced where it is set.
func AfterSync(path string) error {
	if Synced == nil {
		return nil
	}
	return Synced(path)
}
