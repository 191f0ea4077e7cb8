// Package failpoint lets tests stand in for a disk whose last answer is an
// error: what was written can be seen, but nobody knows whether it is kept. No
// file system that a test can have gives that on demand. And it lets them write as one
// has to on Windows, wherever they run.
package failpoint

import (
	"os"
	"runtime"
)

// Synced, where a test sets it, is asked after each sync that ends a change, of
// a file or of the folder that holds it. An error takes the place of the sync's
// own answer. It is not to be changed while a change is under way.
var Synced func(path string) error

// Waiting, where a test sets it, is told each time that a lock is not to be had and is
// waited for. It is not to be changed while something waits.
var Waiting func(path string)

// AfterSync is Synced where it is set.
func AfterSync(path string) error {
	if Synced == nil {
		return nil
	}
	return Synced(path)
}

// Windows: index files are mapped anew as they grow, and files that are open are renamed
// before another gets their name. It is not to be changed while a file is open.
var Windows = runtime.GOOS == "windows"

// FromEnvironment is for tests and the programs that they run: it sets Windows if
// PLAID_AS_ON_WINDOWS is set.
func FromEnvironment() { Windows = Windows || os.Getenv("PLAID_AS_ON_WINDOWS") != "" }
