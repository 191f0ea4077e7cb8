package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
)

const (
	readSecret  = "read-read-read-read"
	writeSecret = "write-write-write-write"
	adminSecret = "admin-admin-admin-admin"
)

func allTokens() server.Tokens {
	return server.Tokens{server.NewToken("r", server.Read, readSecret), server.NewToken("w", server.Write, writeSecret), server.NewToken("a", server.Admin, adminSecret)}
}

func TestTokens(t *testing.T) {
	s := start(t, words{}, &server.Options{Tokens: allTokens()})
	bearer := func(secret string) string { return "Authorization: Bearer " + secret }
	for _, c := range []struct {
		method, path string
		body         any
		need         int // 0: none, 1: read, 2: write, 3: admin
	}{
		{"GET", "/livez", nil, 0},
		{"GET", "/readyz", nil, 0},
		{"GET", "/openapi.json", nil, 0},
		{"GET", "/health", nil, 1},
		{"GET", "/metrics", nil, 1},
		{"GET", "/indices", nil, 1},
		{"POST", "/encode", object{"texts": list{"a"}, "input_type": "query"}, 1},
		{"POST", "/indices/pets/update", object{"documents": list{query("x")}}, 2},
		{"POST", "/indices/pets/documents", object{"documents": list{query("x")}}, 2},
		{"DELETE", "/indices/pets/documents", object{"ids": list{"x"}}, 2},
		{"POST", "/indices/pets/metadata/update", object{"condition": "_id = ?", "parameters": list{"x"}, "updates": object{}}, 2},
		{"POST", "/indices", object{"name": "new"}, 3},
		{"PUT", "/indices/pets/config", object{"max_documents": 5}, 3},
		{"GET", "/indices/pets/backup", nil, 3},
		{"DELETE", "/indices/new", nil, 3},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			r := s.send(t, c.method, c.path, c.body)
			if c.need == 0 {
				require.Equal(t, 200, r.status, r.body)
				return
			}
			isProblem(t, r, server.CodeUnauthorized)
			require.Equal(t, 401, r.status)
			require.NotEmpty(t, r.header.Get("WWW-Authenticate"))
			for i, secret := range []string{"", readSecret, writeSecret, adminSecret} {
				r := s.send(t, c.method, c.path, c.body, bearer(secret))
				switch {
				case i == 0:
					require.Equal(t, 401, r.status, r.body)
				case i < c.need:
					require.Equal(t, 403, r.status, r.body)
					isProblem(t, r, server.CodeForbidden)
				default:
					require.NotContains(t, []int{401, 403}, r.status, r.body)
				}
				if i == 3 && c.path == "/indices" && c.method == "POST" {
					s.send(t, "POST", "/indices", object{"name": "pets"}, bearer(adminSecret))
				}
			}
		})
	}
	for _, header := range []string{"Bearer wrong-wrong-wrong", "Basic " + readSecret, readSecret, "Bearer", "Bearer " + readSecret + "x", "Bearer " + readSecret[1:]} {
		s.refused(t, 401, server.CodeUnauthorized, "GET", "/indices", nil, "Authorization: "+header)
	}
	require.Equal(t, 200, s.send(t, "GET", "/indices", nil, "Authorization: bearer "+readSecret).status)
}

// The file is read again; what cannot be read leaves what was.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("a read " + readSecret)
	f, err := server.OpenTokenFile(context.Background(), path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s := start(t, nil, &server.Options{Tokens: f})
	status := func(secret string) int {
		return s.send(t, "GET", "/indices", nil, "Authorization: Bearer "+secret).status
	}
	require.Equal(t, 200, status(readSecret))
	write("w write " + writeSecret)
	f.Reload()
	require.Equal(t, 401, status(readSecret))
	require.Equal(t, 200, status(writeSecret))
	write("nonsense")
	f.Reload()
	require.Equal(t, 200, status(writeSecret))
	require.NoError(t, os.Remove(path))
	f.Reload()
	require.Equal(t, 200, status(writeSecret))
	write("a read " + readSecret + "\n")
	require.Eventually(t, func() bool { return status(readSecret) == 200 }, time.Minute, 20*time.Millisecond) // by itself
	_, err = server.OpenTokenFile(context.Background(), path+"x", slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, server.ErrTokens)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestRateLimit(t *testing.T) {
	s := start(t, nil, &server.Options{
		Limits: server.Limits{Rate: 1e-3, Burst: 2}, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
	})
	from := func(client string) *reply { return s.send(t, "GET", "/indices", nil, "X-Forwarded-For: "+client) }
	for range 2 {
		require.Equal(t, 200, from("198.51.100.1").status)
	}
	r := from("198.51.100.1")
	require.Equal(t, 429, r.status)
	p := isProblem(t, r, server.CodeRateLimited)
	require.Positive(t, p.RetryAfter)
	require.Equal(t, fmt.Sprint(p.RetryAfter), r.header.Get("Retry-After"))
	require.Equal(t, 200, from("198.51.100.2").status)                         // another client
	require.Equal(t, 429, from("203.0.113.9, 198.51.100.1, 192.0.2.7").status) // what a client says of itself does not count
	require.Equal(t, 200, s.send(t, "GET", "/livez", nil).status)              // probes are not counted
	require.Equal(t, 200, s.send(t, "GET", "/health", nil).status)
}

func TestBodyLimits(t *testing.T) {
	s := start(t, nil, &server.Options{Limits: server.Limits{Body: 1000}})
	large := object{"name": "x", "padding": strings.Repeat("x", 2000)}
	s.refused(t, 413, server.CodeTooLarge, "POST", "/indices", large)
	// Without a length it is found while it is read.
	text, err := json.Marshal(large)
	require.NoError(t, err)
	r := httptest.NewRequest("POST", "http://localhost/indices", struct{ io.Reader }{bytes.NewReader(text)})
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Equal(t, 413, w.Code, w.Body)

	all := start(t, nil, &server.Options{Limits: server.Limits{Bodies: 1000, Decoded: 1 << 20}})
	p := all.refused(t, 413, server.CodeTooLarge, "POST", "/indices", large) // no wait would help
	require.Contains(t, p.Message, "for bodies (max-memory)")
	require.Equal(t, 200, all.send(t, "POST", "/indices", object{"name": "x"}).status) // given back
}

// blocking is an encoder that waits until it is let go.
type blocking struct {
	words
	entered chan struct{}
	free    chan struct{}
}

func (b *blocking) Queries(ctx context.Context, texts []string) ([]encode.Embedding, error) {
	b.entered <- struct{}{}
	select {
	case <-b.free:
		return b.words.Queries(ctx, texts)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var encoding = object{"texts": list{"a"}, "input_type": "query"}

func TestConcurrencyAndTimeouts(t *testing.T) {
	b := &blocking{entered: make(chan struct{}, 100), free: make(chan struct{})}
	s := start(t, b, &server.Options{Limits: server.Limits{Concurrent: 1}})
	var wg sync.WaitGroup
	statuses := make(chan int, 20)
	wg.Add(1)
	go func() { defer wg.Done(); statuses <- s.send(t, "POST", "/encode", encoding).status }()
	<-b.entered
	for range 14 { // 10 of them wait
		wg.Add(1)
		go func() { defer wg.Done(); statuses <- s.send(t, "POST", "/encode", encoding).status }()
	}
	counts := map[int]int{}
	for range 4 { // those that may not even wait are answered while the first one runs
		counts[<-statuses]++
	}
	require.Equal(t, map[int]int{503: 4}, counts)
	require.Equal(t, 200, s.send(t, "GET", "/indices", nil).status) // another group
	close(b.free)
	wg.Wait()
	for range 11 {
		counts[<-statuses]++
	}
	require.Equal(t, map[int]int{503: 4, 200: 11}, counts)

	slow := start(t, &blocking{entered: make(chan struct{}, 100), free: make(chan struct{})}, &server.Options{Limits: server.Limits{Work: 20 * time.Millisecond}})
	slow.refused(t, 408, server.CodeTimeout, "POST", "/encode", encoding)
}

// A client that sends its body slowly, or not at all, is cut off; so is one whose
// headers do not come.
func TestSlowClients(t *testing.T) {
	s, err := server.New(openStore(t, nil).Catalog(), nil, &server.Options{Limits: server.Limits{Stall: 200 * time.Millisecond}})
	require.NoError(t, err)
	address, hasty := listen(t, s, nil), listen(t, s, &server.ServeOptions{Header: time.Second})
	for name, c := range map[string]struct{ address, sent string }{
		"headers": {hasty, "POST /indices HTTP/1.1\r\nHost: localhost\r\n"},
		"body":    {address, "POST /indices HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"name\""},
		"unread":  {address, "GET /indices HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"},
	} {
		conn, err := net.Dial("tcp", c.address)
		require.NoError(t, err)
		_, err = conn.Write([]byte(c.sent))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Minute)))
		answer, err := io.ReadAll(conn) // until the server closes it
		require.NoError(t, err, name)
		if name == "body" {
			require.Contains(t, string(answer), " 408 ")
		}
		require.NoError(t, conn.Close())
	}
}

// The end of a server: what runs is finished, /readyz says that it ends, and what
// takes too long is cut off.
func TestDrain(t *testing.T) {
	for _, patient := range []bool{true, false} {
		b := &blocking{entered: make(chan struct{}, 1), free: make(chan struct{})}
		s, err := server.New(openStore(t, nil).Catalog(), b, nil)
		require.NoError(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		o := &server.ServeOptions{Drain: time.Minute}
		if !patient {
			o.Drain = time.Millisecond
		}
		go func() { ended <- s.Serve(ctx, l, o) }()
		status := make(chan int, 1)
		go func() {
			r, err := http.Post("http://"+l.Addr().String()+"/encode", "application/json", strings.NewReader(`{"texts": ["a"], "input_type": "query"}`))
			if err != nil {
				status <- 0
				return
			}
			_ = r.Body.Close()
			status <- r.StatusCode
		}()
		<-b.entered
		stop()
		if !patient {
			require.ErrorIs(t, <-ended, context.DeadlineExceeded)
			require.Equal(t, 0, <-status)
			continue
		}
		require.Eventually(t, func() bool {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/readyz", nil))
			return w.Code == 503
		}, time.Minute, time.Millisecond)
		close(b.free)
		require.Equal(t, 200, <-status)
		require.NoError(t, <-ended)
	}
}

// faulty is an encoder with a fault.
type faulty struct{ words }

func (faulty) Queries(context.Context, []string) ([]encode.Embedding, error) { panic("a fault") }

func (faulty) Tokenize(encode.Role, string) ([]encode.Token, error) {
	return nil, fmt.Errorf("secret detail")
}

// A panic fails its request, and the log has its stack under the request's id.
func TestFaultsAreInternalErrors(t *testing.T) {
	var log bytes.Buffer
	s := start(t, faulty{}, &server.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	p := s.refused(t, 500, server.CodeInternal, "POST", "/encode", encoding, "X-Request-ID: my-id")
	require.Equal(t, "my-id", p.RequestID)
	require.NotContains(t, p.Message, "fault")
	require.Contains(t, log.String(), "a fault")
	require.Contains(t, log.String(), `"request_id":"my-id"`)
	require.Contains(t, log.String(), "faulty")
	log.Reset()
	s.addPets(t)
	p = s.refused(t, 500, server.CodeInternal, "POST", "/indices/pets/explain", object{"query": query("cats"), "id": "a", "text_fields": list{"text"}})
	require.NotContains(t, p.Message, "secret")
	require.Contains(t, log.String(), "secret detail")
}

func TestRequestIDs(t *testing.T) {
	s := start(t, nil, nil)
	require.Equal(t, "abc-1", s.send(t, "GET", "/indices", nil, "X-Request-ID: abc-1").header.Get("X-Request-ID"))
	seen := map[string]bool{}
	for _, sent := range []string{"", "with blank", strings.Repeat("x", 200), "\x01", "ü"} {
		for _, path := range []string{"/livez", "/nothing", "/indices/none"} {
			id := s.send(t, "GET", path, nil, "X-Request-ID: "+sent).header.Get("X-Request-ID")
			require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id)
			require.False(t, seen[id])
			seen[id] = true
		}
	}
}

func TestCORS(t *testing.T) {
	plain := start(t, nil, nil)
	require.Empty(t, plain.send(t, "GET", "/livez", nil, "Origin: https://a.example").header.Get("Access-Control-Allow-Origin"))
	s := start(t, nil, &server.Options{Origins: []string{"https://a.example"}, Tokens: allTokens()})
	r := s.send(t, "OPTIONS", "/indices", nil, "Origin: https://a.example", "Access-Control-Request-Method: POST")
	require.Equal(t, 200, r.status)
	require.Equal(t, "https://a.example", r.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, r.header.Get("Access-Control-Allow-Methods"), "DELETE")
	require.Contains(t, r.header.Get("Access-Control-Allow-Headers"), "Authorization")
	r = s.send(t, "GET", "/indices", nil, "Origin: https://a.example") // errors have it too
	require.Equal(t, 401, r.status)
	require.Equal(t, "https://a.example", r.header.Get("Access-Control-Allow-Origin"))
	r = s.send(t, "OPTIONS", "/indices", nil, "Origin: https://b.example", "Access-Control-Request-Method: POST")
	require.Empty(t, r.header.Get("Access-Control-Allow-Origin"))
	// A page can send a request without a body before it is allowed to: it is refused.
	own, other := "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"
	for path, answer := range map[string]int{"/indices/none/retrain": 404, "/indices/none/verify": 404} {
		require.Equal(t, answer, plain.send(t, "POST", path, nil, own, "Origin: "+plain.URL).status, path)
		require.Equal(t, 403, plain.send(t, "POST", path, nil, other, "Origin: https://a.example").status, path)
		require.Equal(t, 403, plain.send(t, "POST", path, nil, "Origin: https://a.example").status, path)
	}
	require.Equal(t, 200, plain.send(t, "GET", "/indices", nil, other, "Origin: https://a.example").status)
	all := start(t, nil, &server.Options{Origins: []string{"*"}})
	require.Equal(t, 404, all.send(t, "POST", "/indices/none/retrain", nil, other, "Origin: https://a.example").status)
	require.Equal(t, "*", all.send(t, "GET", "/livez", nil, "Origin: https://b.example").header.Get("Access-Control-Allow-Origin"))
}

func TestMetrics(t *testing.T) {
	s := start(t, words{}, &server.Options{Version: "1.2.3"})
	s.addPets(t)
	s.search(t, "_with_encoding", object{"queries": list{"cats", "dogs"}})
	s.send(t, "GET", "/no/such/route", nil)
	text := s.send(t, "GET", "/metrics", nil).body
	for _, line := range []string{
		`plaid_http_requests_total{method="POST",route="/indices/{name}/update",status="202"} 1`,
		`plaid_http_requests_total{method="any",route="none",status="404"} 1`,
		`plaid_http_request_seconds_count{route="/indices/{name}/search_with_encoding"} 1`,
		`plaid_search_stage_seconds_count{index="pets",stage="total"} 2`,
		`plaid_encode_seconds_count{role="query"} 1`,
		`plaid_documents_written_total{index="pets",what="added"} 3`,
		`plaid_index_documents{index="pets"} 3`,
		`plaid_index_queue_documents{index="pets"} 0`,
		`plaid_index_drift_ratio{index="pets"} `,
		`plaid_info{device="cpu",version="1.2.3"} 1`,
		`go_goroutines `,
	} {
		require.Contains(t, text, "\n"+line)
	}
	require.NotContains(t, text, `stage="wait"`, "no query has waited")
	require.Less(t, strings.Count(text, `index="pets"`), 80, "lines of one index")
	s.ok(t, 200, "DELETE", "/indices/pets", nil, nil)
	require.NotContains(t, s.send(t, "GET", "/metrics", nil).body, `index="pets"`)
}

func TestReadiness(t *testing.T) {
	s := start(t, nil, &server.Options{EncoderLater: true})
	s.refused(t, 503, server.CodeModelLoading, "GET", "/readyz", nil)
	require.Equal(t, 200, s.send(t, "GET", "/livez", nil).status)
	s.SetEncoder(words{})
	require.Equal(t, 200, s.send(t, "GET", "/readyz", nil).status)
	var h struct {
		Model object
		Train int64 `json:"train_tokens"`
	}
	s.ok(t, 200, "GET", "/health", nil, &h)
	require.Equal(t, "words", h.Model["name"])
	require.EqualValues(t, 1<<16, h.Train)
	set := startAt(t, openStore(t, &store.Options{Growth: collection.Growth{Flat: -1}}), nil, nil)
	set.ok(t, 200, "GET", "/health", nil, &h)
	require.EqualValues(t, 1, h.Train, "the first documents are trained on")
	s.Drain()
	s.refused(t, 503, server.CodeBusy, "GET", "/readyz", nil)
	require.Equal(t, 200, s.send(t, "POST", "/encode", encoding).status)

	var ready struct{ Damaged map[string]string }
	d := damaged(t)
	d.ok(t, 200, "GET", "/readyz", nil, &ready)
	require.Contains(t, ready.Damaged, "damaged")
	d.refused(t, 500, server.CodeCorrupt, "POST", "/indices/damaged/search", object{"queries": list{query("x")}})
	require.Contains(t, d.send(t, "GET", "/metrics", nil).body, `plaid_index_up{index="damaged"} 0`)
}

// A full queue is 503 with a time to come back, and nothing of the request is kept.
func TestFullQueue(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{}, 100)
	st := openStore(t, &store.Options{Queue: store.QueueLimits{Documents: 1}, Committed: func(*store.Collection) { held <- struct{}{}; <-hold }})
	s := startAt(t, st, nil, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "pets"}, nil)
	first := make(chan int, 1)
	one := object{"documents": list{query("cats")}}
	go func() { first <- s.send(t, "POST", "/indices/pets/update", one).status }()
	<-held // the first one is being written, and fills the queue
	r := s.send(t, "POST", "/indices/pets/update", one)
	require.Equal(t, 503, r.status, r.body)
	require.Positive(t, isProblem(t, r, server.CodeBusy).RetryAfter)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.NotContains(t, strings.ToLower(r.body), "model") // clients would take it for another error
	close(hold)
	require.Equal(t, 202, <-first)
	var info object
	s.ok(t, 200, "GET", "/indices/pets", nil, &info)
	require.Equal(t, 1., info["num_documents"])
}

// What the dashboard and the alert rules ask for is there: each metric, each label of it
// that they name, and the routes.
func TestDashboardAndAlerts(t *testing.T) {
	s := startPets(t)
	s.ok(t, 202, "POST", "/indices/pets/update_with_encoding", object{"documents": list{"fish swim"}}, nil)
	s.search(t, "", object{"queries": list{query("cats")}})
	s.search(t, "_with_encoding", object{"queries": list{"cats"}})
	page := s.send(t, "GET", "/metrics", nil).body

	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	text, err := os.ReadFile("deploy/grafana.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &board))
	require.NotEmpty(t, board.Panels)
	var asked []string
	for i, p := range board.Panels {
		require.Equal(t, i+1, p.ID)
		require.NotEmpty(t, p.Targets, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
		for _, target := range p.Targets {
			asked = append(asked, target.Expr)
		}
	}
	variables := []string{"__rate_interval"}
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
	}
	for _, v := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(string(text), -1) {
		require.Contains(t, append(variables, "__all"), v[1])
	}
	rules, err := os.ReadFile("deploy/plaid.rules.yaml")
	require.NoError(t, err)
	asked = append(asked, string(rules))

	metric := regexp.MustCompile(`\b((?:plaid|process|go)_[a-z_]+)(?:\{(.*?[^e])\})?`) // {name} of a route is no end
	label := regexp.MustCompile(`(\w+)(?:=~|!=|=)"`)
	n := 0
	for _, m := range metric.FindAllStringSubmatch(strings.Join(asked, "\n"), -1) {
		n++
		line := regexp.MustCompile(`(?m)^` + m[1] + `(\{.*\})? .*$`).FindString(page)
		require.NotEmpty(t, line, "%s is no metric of the service", m[1])
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "instance" && l[1] != "job" { // Prometheus adds these
				require.Contains(t, line, l[1]+`="`, m[0])
			}
		}
	}
	require.Greater(t, n, 30)
	require.Contains(t, page, `route="/indices/{name}/search"`)
}
