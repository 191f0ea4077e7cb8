//go:build unix

package tokenizer

import (
	"syscall"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/realdata"
)

// BenchmarkEncodeIDs tokenizes the real lines beside the checkout; testdata/speed.py
// does the same with the Python package. Cold: no word is remembered at the
// start of a round over all lines.
func BenchmarkEncodeIDs(b *testing.B) {
	for _, c := range realFiles {
		for _, cold := range []bool{true, false} {
			name := c.kind + "/warm"
			if cold {
				name = c.kind + "/cold"
			}
			b.Run(name, func(b *testing.B) {
				tok := beside(b, c.file)
				var lines map[string][]string
				readGzip(b, realdata.Path(b, "models", "tokenizers", "lines.json.gz"), &lines)
				bytes, ids, made := 0, []int32(nil), 0
				for _, l := range lines["real"] {
					bytes += len(l)
				}
				b.SetBytes(int64(bytes))
				b.ReportAllocs()
				before := processorTime()
				for b.Loop() {
					if cold {
						tok.cache = newCache()
					}
					for _, l := range lines["real"] {
						var err error
						if ids, err = tok.EncodeIDs(ids[:0], l); err != nil {
							b.Fatal(err)
						}
						made += len(ids)
					}
				}
				took := (processorTime() - before).Seconds()
				b.ReportMetric(float64(bytes*b.N)/1e6/took, "MB/cpu-s")
				b.ReportMetric(float64(made)/1e6/took, "Mids/cpu-s")
			})
		}
	}
}

// processorTime is what this process has used: other programs do not change it as
// they do the time of day.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
