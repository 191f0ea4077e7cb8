package server_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkSearch is a search of 1,000 small documents through a socket, as a client of this machine
// asks it: the vectors as tensors, the answer as JSON. beyond-ns/op is the median of the time that the
// engine does not report as its own.
func BenchmarkSearch(b *testing.B) {
	s := startAt(b, openStore(b, nil), nil, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	const dim = 32
	vectors := func(n int) [][]float32 {
		rows := make([][]float32, n)
		for i := range rows {
			rows[i] = make([]float32, dim)
			for j := range rows[i] {
				rows[i][j] = float32(rng.NormFloat64())
			}
		}
		return rows
	}
	documents, metadata := make([]object, 1000), make([]object, 1000)
	for i := range documents {
		documents[i] = object{"embeddings": vectors(3 + rng.IntN(17))}
		metadata[i] = object{"_id": fmt.Sprint(i), "title": fmt.Sprintf("document %d", i), "year": 1990 + i%30,
			"text": strings.Repeat("some words ", 20)}
	}
	body := object{"documents": documents, "metadata": metadata}
	s.ok(b, http.StatusOK, "POST", "/indices", object{"name": "a", "config": object{}}, nil)
	s.ok(b, http.StatusAccepted, "POST", "/indices/a/update?wait=true", body, nil)

	socket := filepath.Join(b.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(b, err)
	listening := httptest.NewUnstartedServer(s)
	listening.Listener.Close()
	listening.Listener = l
	listening.Start()
	b.Cleanup(listening.Close)
	client, err := net.Dial("unix", socket)
	require.NoError(b, err)
	answers := bufio.NewReader(client)
	ask := func(b *testing.B, request []byte) []byte {
		_, err := client.Write(request)
		require.NoError(b, err)
		r, err := http.ReadResponse(answers, nil)
		require.NoError(b, err)
		answer, err := io.ReadAll(r.Body)
		require.NoError(b, err)
		require.Equal(b, http.StatusOK, r.StatusCode, "%s", answer)
		return answer
	}
	query := f32Tensor(dim, slices.Concat(vectors(5)...)...)
	for _, k := range []int{10, 100} {
		for _, withMetadata := range []bool{false, true} {
			b.Run(fmt.Sprintf("k=%d/metadata=%v", k, withMetadata), func(b *testing.B) {
				asked := fmt.Sprintf(`{"params":{"top_k":%d},"metadata":%v,"stats":true}`, k, withMetadata)
				body := safetensors(lengthsTensor(5), requestTensor(asked), query)
				request := append(fmt.Appendf(nil, "POST /indices/a/search HTTP/1.1\r\nHost: localhost\r\n"+
					"Content-Type: application/safetensors\r\nContent-Length: %d\r\n\r\n", len(body)), body...)
				var beyond []float64
				for b.Loop() {
					began := time.Now()
					answer := ask(b, request)
					took := time.Since(began)
					_, rest, _ := bytes.Cut(answer, []byte(`"total_ns":`))
					engine, err := strconv.ParseInt(string(rest[:bytes.IndexAny(rest, ",}")]), 10, 64)
					require.NoError(b, err)
					beyond = append(beyond, float64(took.Nanoseconds()-engine))
				}
				slices.Sort(beyond)
				b.ReportMetric(beyond[len(beyond)/2], "beyond-ns/op")
			})
		}
	}
}
