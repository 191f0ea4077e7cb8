package compressed

import (
	"flag"
	"os"
	"testing"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// A short run under the race detector draws fewer cases of each property.
func TestMain(m *testing.M) {
	flag.Parse()
	if effort.Brief() {
		if err := flag.Set("rapid.checks", "20"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
