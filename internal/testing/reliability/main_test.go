//go:build linux && (amd64 || arm64)

package reliability

import (
	"flag"
	"os"
	"testing"

	"github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/internal/testing/faults"
)

var (
	full  = flag.Bool("full", false, "all points of the series")
	seed  = flag.Uint64("seed", 1, "`N` that decides which documents and, where not all are taken, which points")
	cases = flag.Int("cases", 0, "how many points of each series (0: a few hundred, with -full as many as there are)")
)

// programVariable makes the test binary the program under test.
const programVariable = "PLAID_RELIABILITY_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(command.Main())
	}
	if os.Getenv(handleVariable) != "" {
		os.Exit(handleProcess())
	}
	os.Exit(m.Run())
}

// needFaults skips where calls cannot be intercepted, unless that is demanded.
func needFaults(t *testing.T) {
	t.Helper()
	if err := faults.Available(); err != nil {
		if os.Getenv("PLAID_REQUIRE_FAULTS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}
