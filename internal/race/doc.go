// Package race tells tests whether they run under the race detector.
package race

import "testing"

// Brief says that a test runs under the race detector in a short run: it leaves
// out what other runs see, but for one case of each kind.
func Brief() bool { return Enabled && testing.Short() }
