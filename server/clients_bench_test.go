package server_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
)

// BenchmarkEncodeClients: texts of a few words at /encode, one a request, of one client and
// of many that ask again when they have an answer.
func BenchmarkEncodeClients(b *testing.B) {
	for model, dir := range map[string]string{"colbert-nano": realdata.Path(b, "models", "colbert-nano"), "colbert-mini": realdata.Mini(b)} {
		e, err := encode.Open(dir, nil)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, e.Close()) })
		s := start(b, e, nil)
		for _, clients := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", model, clients), func(b *testing.B) {
				timed(b, clients, func(i int) {
					r := s.send(b, "POST", "/encode", fmt.Sprintf(`{"texts": ["how long do cats sleep on day %d?"], "input_type": "query"}`, i))
					if r.status != 200 {
						b.Errorf("%d %s", r.status, r.body)
					}
				})
			})
		}
	}
}

// timed lets clients ask until b.N requests are answered, and reports how many a second and
// their quantiles.
func timed(b *testing.B, clients int, ask func(i int)) {
	var next atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	b.ResetTimer()
	for range clients {
		wg.Go(func() {
			var own []time.Duration
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				began := time.Now()
				ask(i)
				own = append(own, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[min(int(q*float64(len(took))), len(took)-1)].Microseconds()) / 1000
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(at(.5), "p50-ms")
	b.ReportMetric(at(.99), "p99-ms")
}
