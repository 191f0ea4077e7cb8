package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

const envMemoryChild = "PLAID_TEST_MEMORY"

// Whatever requests a token allows, sixty-four of the worst of each route at once: the
// memory of the process stays within what its budgets say. A process of its own sends and
// answers them.
func TestMemoryOfRequests(t *testing.T) {
	if os.Getenv(envMemoryChild) != "" {
		worstRequests(t)
		return
	}
	if !effort.Long() || effort.RaceDetector { // which takes memory of its own
		t.Skip("a thousand large requests")
	}
	c := exec.Command(os.Args[0], "-test.run=^TestMemoryOfRequests$", "-test.v")
	// On a busy machine the collector comes late; that it comes twice as often leaves room for that.
	c.Env = append(os.Environ(), envMemoryChild+"=1", "GOGC=50")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, rest, ok := strings.Cut(string(out), "VmHWM:")
	require.True(t, ok, "%s", out)
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	t.Logf("%d MB at most", kilobytes>>10)
	// The garbage of what has ended waits until there is as much again as lives.
	require.Less(t, kilobytes>>10, 2*(memoryBodies+memoryAnswers)+memoryBase, "%s", out)
}

// Budgets of the service that is tested, and what it takes without requests, in MiB.
const (
	memoryBodies  = 96
	memoryDecoded = 24
	memoryAnswers = 48
	memoryBase    = 128
)

func worstRequests(t *testing.T) {
	st := openStore(t, nil)
	s, err := server.New(st.Set(), words{}, &server.Options{Limits: server.Limits{
		Body: 8 << 20, Decoded: memoryDecoded << 20, Bodies: memoryBodies << 20, Answers: memoryAnswers << 20, Answer: 16 << 20, Concurrent: 16, Quick: 4 * time.Second, Work: 8 * time.Second,
	}})
	require.NoError(t, err)
	c, err := st.Declare(context.Background(), "a", collection.Config{})
	require.NoError(t, err)
	var docs []collection.Document
	for i := range 50 {
		docs = append(docs, collection.Document{ID: fmt.Sprint("d", i), Vectors: flat(strings.Repeat("cats dogs ", 20)), Dim: wordDim, Metadata: []byte(`{"t":"` + strings.Repeat("x ", 10_000) + `","n":1}`)})
	}
	_, err = c.Update(context.Background(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	docs = nil
	address := "http://" + listen(t, s, nil)
	vector, err := json.Marshal(word("cats"))
	require.NoError(t, err)
	row := string(vector)
	many := func(before, item, after string, bytes int) string {
		return before + strings.Repeat(item+",", bytes/(len(item)+1)) + item + after
	}
	const size = 4 << 20
	worst := []struct{ path, body string }{
		{"/indices/a/search", many(`{"queries":[`, `{}`, `]}`, size)},
		{"/indices/a/search", many(`{"queries":[`, `{"embeddings":[`+row+`]}`, `],"params":{"top_k":100}}`, 20_000)},
		{"/indices/a/search", many(`{"queries":[{"embeddings":[`, row, `]}]}`, size)},
		{"/indices/a/search_with_encoding", many(`{"queries":[`, `"a"`, `]}`, size)},
		{"/indices/a/search", many(`{"text_query":[`, `"x"`, `]}`, 2000)},
		{"/indices/a/update", many(`{"documents":[`, `{}`, `]}`, size)},
		{"/indices/a/update", many(`{"documents":[{"embeddings":[`, `[0]`, `]}]}`, size)},
		{"/indices/a/update_with_encoding", many(`{"documents":[`, `"`+strings.Repeat("a ", 500)+`"`, `]}`, size)},
		{"/indices/a/metadata/query", many(`{"condition":"n = ?","parameters":[`, `0`, `]}`, size)},
		{"/indices/a/metadata/get", many(`{"document_ids":[`, `1`, `]}`, 1<<20)},
		{"/indices/a/metadata/get", `{}`},
		{"/indices/a/metadata/update", `{"condition":"n = ?","parameters":[1],"updates":` + many(`{"y":[`, `{}`, `]}`, size) + `}`},
		{"/encode", many(`{"input_type":"document","texts":[`, `"`+strings.Repeat("a ", 500)+`"`, `]}`, 100_000)},
		{"/encode", many(`{"input_type":"query","texts":[`, `"a"`, `]}`, size)},
		{"/rerank", `{"query":[` + row + `],` + many(`"documents":[`, `{"embeddings":[`+row+`]}`, `]}`, size)},
		{"/v1/rerank", many(`{"query":"a","documents":[`, `"a"`, `]}`, size)},
		{"/v2/rerank", many(`{"query":"a","documents":[`, `{"text":"a"}`, `]}`, size)},
		{"/rerank_with_encoding", many(`{"query":"a","documents":[`, `"a"`, `]}`, size)},
		{"/v1/embeddings", many(`{"input":[`, `"`+strings.Repeat("a ", 500)+`"`, `]}`, 100_000)},
		{"/indices/a/search/filtered", many(`{"queries":[{"embeddings":[`+row+`]}],"filter_condition":"n = ?","filter_parameters":[`, `0`, `]}`, size)},
		{"/indices/a/search/filtered_with_encoding", many(`{"queries":[`, `"a"`, `],"filter_condition":"n = 1"}`, size)},
		{"/indices/a/explain", many(`{"document_id":1,"similarities":true,"query":{"embeddings":[`, row, `]}}`, 50_000)},
		{"/indices/a/explain", `{"document_id":1,"similarities":true,"text":"` + strings.Repeat("a ", 2_000) + `"}`},
		{"/indices/a/recall", many(`{"queries":[`, `{"embeddings":[`+row+`]}`, `]}`, 10_000)},
		{"/indices/a/facets", many(`{"fields":[`, `"t"`, `],"values":1000000}`, 300)},
		{"/indices/a/metadata/check", many(`{"document_ids":[`, `1`, `]}`, size)},
	}
	for _, w := range worst {
		debug.FreeOSMemory()
		var wg sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for range 64 {
			wg.Go(func() {
				r, err := http.Post(address+w.path, "application/json", strings.NewReader(w.body))
				status := 0 // cut
				if err == nil {
					status = r.StatusCode
					_, _ = io.Copy(io.Discard, r.Body)
					_ = r.Body.Close()
				}
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
			})
		}
		wg.Wait()
		require.Zero(t, statuses[500], w.path)
		t.Logf("%s %.60s: %v, %d MB", w.path, w.body, statuses, highWater(t)>>10)
	}
	t.Logf("VmHWM: %d", highWater(t))
}

// highWater is the most memory that the process had, in KiB.
func highWater(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "VmHWM:")
	require.True(t, ok)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return n
}
