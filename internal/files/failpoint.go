// Package failpoint lets tests stand in for a disk whose last answer is an
// error: what was written can be seen, but nobody knows whether it is kept. No
// file system that a test can have gives that on demand. And it lets them write as one
// has to on AsOnWindows, wherever they run.
package files

import (
	"os"
	"runtime"
)

// HookSynced, where a test sets it, is asked after each sync that ends a change, of
// a file or of the folder that holds it. An error takes the place of the sync's
// own answer. It is not to be changed while a change is under way.
var HookSynced func(path string) error

// HookWaiting, where a test sets it, is told each time that a lock is not to be had and is
// waited for. It is not to be changed while something waits.
var HookWaiting func(path string)

// AfterSync is HookSynced where it is set.
func AfterSync(path string) error {
	if HookSynced == nil {
		return nil
	}
	return HookSynced(path)
}

// AsOnWindows: index files are mapped anew as they grow, and files that are open are renamed
// before another gets their name. It is not to be changed while a file is open.
var AsOnWindows = runtime.GOOS == "windows"

// HooksFromEnvironment is for tests and the programs that they run: it sets AsOnWindows if
// PLAID_AS_ON_WINDOWS is set.
func HooksFromEnvironment() { AsOnWindows = AsOnWindows || os.Getenv("PLAID_AS_ON_WINDOWS") != "" }
