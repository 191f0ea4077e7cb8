package server_test

import (
	"bytes"
	"context"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/server"
)

// Reranks one after another use the same memory: garbage by the megabyte would keep the collector
// busy for longer than scoring takes.
func TestRerankMakesLittleGarbage(t *testing.T) {
	s := start(t, nil, nil)
	lengths := slices.Repeat([]int{180}, 50)
	for _, dtype := range []string{"F32", "BF16"} {
		values := as(dtype, f32Tensor(128, randomValues(50*180*128)...))
		body := safetensors(lengthsTensor(lengths...), named("query", f32Tensor(128, randomValues(4*128)...)), values)
		send := func() {
			r := httptest.NewRequest("POST", "http://localhost/rerank", bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/safetensors")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			require.Equal(t, 200, w.Code, w.Body)
		}
		send()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const times = 10
		for range times {
			send()
		}
		runtime.ReadMemStats(&after)
		require.Less(t, (after.TotalAlloc-before.TotalAlloc)/times, uint64(256<<10), dtype)
	}
}

// The copies that scoring makes of a query of many vectors count as memory of the request.
func TestRerankCountsTheQuery(t *testing.T) {
	const tokens = 500_000
	s := start(t, nil, &server.Options{Limits: server.Limits{Decoded: 10 << 20, Bodies: 20 << 20}})
	query, docs, lengths := named("query", f32Tensor(1, randomValues(tokens)...)), f32Tensor(1, 1, 2, 3), lengthsTensor(3)
	for _, body := range [][]byte{safetensors(lengths, query, docs), safetensors(docs, lengths, query)} {
		s.refused(t, 413, server.CodeTooLarge, "POST", "/rerank", body, tensorsMedia)
	}
	bodies, _ := server.Held(s.Server)
	require.Zero(t, bodies)
}

// waitingScorer works until its context ends.
type waitingScorer struct{ maxsim.Backend }

func (waitingScorer) Score(ctx context.Context, _ *maxsim.Call) error {
	<-ctx.Done()
	return ctx.Err()
}

// A client that leaves before all its documents came has no turn from then on, however long scoring
// those that came would last; and documents that are no numbers are refused as soon as they are read.
func TestRerankEndsWithItsBody(t *testing.T) {
	b, err := maxsim.Select("")
	require.NoError(t, err)
	svc := start(t, nil, &server.Options{Scorer: waitingScorer{b}})
	s := svc.Server
	body, _, _ := rerankBody(128, slices.Repeat([]int{100}, 500)...) // two pieces of a device
	conn := begun(t, listen(t, s, nil), len(body), body[:len(body)*3/4])
	require.Eventually(t, func() bool { return server.Turns(s) == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool {
		bodies, answers := server.Held(s)
		return bodies+answers == 0 && server.Turns(s) == 0
	}, 20*time.Second, time.Millisecond)

	copy(body[len(body)-4:], "\x00\x00\xc0\x7f")
	p := svc.refused(t, 400, server.CodeBadRequest, "POST", "/rerank", body, tensorsMedia)
	require.Contains(t, p.Message, "document 499: token 99: component 127 is NaN")
}
