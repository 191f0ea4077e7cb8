// Package race tells tests how much to do: less under the race detector, more in their
// long form.
package race

import (
	"os"
	"testing"
)

// Brief says that a test runs under the race detector in a short run: it leaves
// out what other runs see, but for one case of each kind.
func Brief() bool { return Enabled && testing.Short() }

// SkipBrief skips what a brief run leaves out, and says why.
func SkipBrief(t testing.TB, why string) {
	t.Helper()
	if Brief() {
		t.Skip(why)
	}
}

// Long says that PLAID_LONG is set: property tests then try more cases, and tests of
// every byte or call leave none out. Changes are tried in the short form, and CI in
// this one.
func Long() bool { return os.Getenv("PLAID_LONG") != "" }

// Cases is how much of something a test tries: in a short run, in the usual one, and in
// the long form.
func Cases(short, usual, long int) int {
	switch {
	case testing.Short():
		return short
	case Long():
		return long
	}
	return usual
}
