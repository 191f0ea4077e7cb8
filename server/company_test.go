package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

// company is a service with clients that behave badly on every route, some of each kind for
// each turn that there is.
type company struct {
	*server.Server
	address string
	conns   []net.Conn
}

// turns is how many requests of a group run at a time.
var turns = effort.Cases(1, 4)

func startCompany(t *testing.T) *company {
	st := openStore(t, nil)
	limits := server.Limits{Stall: time.Hour, Concurrent: turns, Wait: time.Hour}
	s, err := server.New(st.Catalog(), words{}, patient(&server.Options{Limits: limits}))
	require.NoError(t, err)
	h := &service{Server: s, store: st}
	for _, name := range []string{"healthy", "a"} {
		h.ok(t, 200, "POST", "/indices", object{"name": name}, nil)
		h.ok(t, 202, "POST", "/indices/"+name+"/update_with_encoding", object{"documents": list{"cats sleep", "dogs bark"}, "metadata": list{object{"n": 1}, object{"n": 2}}}, nil)
	}
	c, err := st.Create(context.Background(), "large", collection.Config{})
	require.NoError(t, err)
	var docs []collection.DocumentInput
	for i := range 32 {
		docs = append(docs, collection.DocumentInput{ID: fmt.Sprint("d", i), Vectors: flat("cats"), Dim: wordDim, Metadata: []byte(`{"t":"` + strings.Repeat("x", 1<<19) + `"}`)})
	}
	_, err = c.Update(context.Background(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	co := &company{Server: s, address: listen(t, s, &server.ServeOptions{Drain: time.Millisecond})}
	t.Cleanup(co.leave)
	return co
}

// send begins a request of which only a part of the body comes, if so.
func (c *company) send(t *testing.T, method, path, media, body string, part int) net.Conn {
	conn, err := net.Dial("tcp", c.address)
	require.NoError(t, err)
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", method, path, media, len(body), body[:part])
	require.NoError(t, err)
	return conn
}

// come lets them come: to every route clients that send half of a body and then nothing,
// those that leave when they have sent all, and to what has large answers those that take
// their first byte and no more.
func (c *company) come(t *testing.T) {
	for _, r := range server.RequestsOf(c.Server) {
		body := r.Body
		if body == "" && r.Method != "GET" {
			body = strings.Repeat("x", 1000) // of an upload, or where none is wanted
		}
		path := strings.ReplaceAll(r.Pattern, "{name}", "a")
		for range turns + 1 {
			require.NoError(t, c.send(t, r.Method, path, r.Media, body, len(body)).Close())
			if body != "" {
				c.conns = append(c.conns, c.send(t, r.Method, path, r.Media, body, len(body)/2))
			}
		}
	}
	texts, err := json.Marshal(object{"input_type": "document", "texts": strings.Split(strings.Repeat(strings.Repeat("cats ", 400)+"|", 100)+"dogs", "|")})
	require.NoError(t, err)
	for range turns + 1 {
		for _, r := range []struct{ method, path, body string }{
			{"GET", "/indices/large/metadata", ""},
			{"POST", "/indices/large/metadata/get", "{}"},
			{"POST", "/indices/large/search", `{"queries":[{"embeddings":` + rowsOf("cats") + `}],"params":{"top_k":32}}`},
			{"POST", "/encode", string(texts)},
			{"GET", "/indices/large/backup", ""},
		} {
			conn := c.send(t, r.method, r.path, "application/json", r.body, len(r.body))
			c.conns = append(c.conns, conn)
			first := make([]byte, 13)
			if r.path == "/indices/large/backup" {
				continue // these have turns of their own, which the first ones keep
			}
			_, err := io.ReadFull(conn, first)
			require.NoError(t, err)
			require.Equal(t, "HTTP/1.1 200 ", string(first), r.path)
		}
	}
}

func rowsOf(text string) string {
	rows, err := json.Marshal(matrix(text))
	if err != nil {
		panic(err)
	}
	return string(rows)
}

// leave lets them all go.
func (c *company) leave() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// healthy is a client that asks, and takes its answers; it returns the first one that is
// not as it has to be.
func (c *company) healthy(ctx context.Context) error {
	for _, r := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/indices/healthy/search", `{"queries":[{"embeddings":` + rowsOf("cats") + `}]}`, 200},
		{"POST", "/indices/healthy/search", `{"text_query":["cats"]}`, 200},
		{"POST", "/indices/healthy/search_with_encoding", `{"queries":["cats"]}`, 200},
		{"POST", "/encode", `{"texts":["cats"],"input_type":"query"}`, 200},
		{"POST", "/rerank_with_encoding", `{"query":"cats","documents":["cats","dogs"]}`, 200},
		{"POST", "/indices/healthy/metadata/query", `{"condition":"n > 0"}`, 200},
		{"POST", "/indices/healthy/metadata/update", `{"condition":"n > 0","updates":{"m":1}}`, 200},
		{"GET", "/indices/healthy", "", 200},
		{"GET", "/readyz", "", 200},
	} {
		q, err := http.NewRequestWithContext(ctx, r.method, "http://"+c.address+r.path, strings.NewReader(r.body))
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != r.status {
			return fmt.Errorf("%s %s: %d %s %w", r.method, r.path, answer.StatusCode, text, err)
		}
	}
	return nil
}

// Clients that read slowly, send slowly or leave, on every route and more of them than
// there are turns, keep nobody else from anything; and nothing of them stays.
func TestBadCompany(t *testing.T) {
	effort.SkipBrief(t, "takes minutes under the race detector on a busy machine")
	c := startCompany(t)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute) // of what hangs
	defer stop()
	require.NoError(t, c.healthy(ctx))
	c.come(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range effort.Cases(1, 5) {
				if err := c.healthy(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	c.leave()
	require.Eventually(t, func() bool {
		bodies, answers := server.Held(c.Server)
		return bodies == 0 && answers == 0 && server.Turns(c.Server) == 0 && strings.Contains(metrics(c.Server), "plaid_http_requests_running 1\n") // the one that asks
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, c.healthy(ctx))
}
