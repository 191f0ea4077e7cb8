//go:build linux && (amd64 || arm64)

package reliability

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/plaid-ir/plaid/internal/testing/faults"
)

var (
	full  = flag.Bool("full", false, "all points of the series")
	seed  = flag.Uint64("seed", 1, "`N` that decides which documents and, where not all are taken, which points")
	cases = flag.Int("cases", 0, "how many points of each series (0: a few hundred, with -full as many as there are)")
)

// program is the command line program under test.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(handleVariable) != "" {
		os.Exit(handleProcess())
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "plaid-reliability-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if faults.Available() == nil {
		program = filepath.Join(dir, "plaid")
		build := exec.Command("go", "build", "-tags", "nocuda", "-o", program, "github.com/plaid-ir/plaid/cmd/plaid")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the program under test: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
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
