// Package effort tells tests how much to do. By default a test takes its short form; with
// PLAID_LONG set, as in .ci/long, it leaves nothing out.
package effort

import (
	"os"
	"testing"
)

// Long reports whether PLAID_LONG is set: property tests then try more cases, and tests of
// every byte or system call leave none out.
func Long() bool { return os.Getenv("PLAID_LONG") != "" }

// Brief reports whether a short run is under the race detector, where a test leaves out
// all but one case of each kind.
func Brief() bool { return RaceDetector && !Long() }

// SkipBrief skips a test in a brief run and says why.
func SkipBrief(t testing.TB, why string) {
	t.Helper()
	if Brief() {
		t.Skip(why)
	}
}

// Cases returns short, or long in the long form.
func Cases(short, long int) int {
	if Long() {
		return long
	}
	return short
}
