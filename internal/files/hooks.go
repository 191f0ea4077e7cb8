package files

import (
	"os"
	"runtime"
)

// HookSynced, where a test sets it, is called after each sync that ends a change, of a file or of
// the folder that holds it. Its error takes the place of the sync's own: what was written
// is there then, and nothing says whether it is kept. It must not be set while a change is under way.
var HookSynced func(path string) error

// HookWaiting, where a test sets it, is called each time that somebody else has a lock that is waited
// for. It must not be set while something waits.
var HookWaiting func(path string)

// AfterSync calls HookSynced where that is set.
func AfterSync(path string) error {
	if HookSynced == nil {
		return nil
	}
	return HookSynced(path)
}

// AsOnWindows says that index files are mapped again as they grow, and that files that are open are
// renamed before another gets their name. Tests set it on other systems, while no file is open.
var AsOnWindows = runtime.GOOS == "windows"

// HooksFromEnvironment sets AsOnWindows if the variable PLAID_AS_ON_WINDOWS is set; it is for tests and
// the programs that they run.
func HooksFromEnvironment() { AsOnWindows = AsOnWindows || os.Getenv("PLAID_AS_ON_WINDOWS") != "" }
