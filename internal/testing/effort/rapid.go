package effort

import (
	"flag"
	"strconv"
)

// Rapid sets how many cases a property test of rapid tries, unless -rapid.checks is set.
// TestMain calls it before flags are parsed.
func Rapid(short, long int) {
	if err := flag.Set("rapid.checks", strconv.Itoa(Cases(short, long))); err != nil {
		panic(err) // the package has no test of rapid
	}
}
