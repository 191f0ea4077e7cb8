package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

// listen serves until the test ends, and returns the address.
func listen(t *testing.T, s *server.Server, o *server.ServeOptions) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l, o) }()
	t.Cleanup(func() { stop(); <-ended })
	return l.Addr().String()
}

// A refusal is answered at once, and its connection ended, though the body that the
// request speaks of never comes.
func TestRefusalsWaitForNoBody(t *testing.T) {
	st := openStore(t, nil)
	storeLarge(t, st, 1)
	s, err := server.New(st.Catalog(), nil, &server.Options{
		Tokens: allTokens(), Origins: []string{"https://a.example"}, Limits: server.Limits{Stall: time.Hour, Body: 5000, Indexes: 1},
	})
	require.NoError(t, err)
	address := listen(t, s, nil)
	limited, err := server.New(openStore(t, nil).Catalog(), nil, &server.Options{Limits: server.Limits{Stall: time.Hour, Rate: 1e-6, Burst: 1}})
	require.NoError(t, err)
	atRate := listen(t, limited, nil)
	for name, c := range map[string]struct {
		address, request string
		status           int
	}{
		"no token":      {address, "POST /indices HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n", 401},
		"chunked":       {address, "POST /indices HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n", 401},
		"wrong token":   {address, "POST /indices HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 1000\r\n", 401},
		"forbidden":     {address, "POST /indices HTTP/1.1\r\nAuthorization: Bearer " + readSecret + "\r\nContent-Length: 1000\r\n", 403},
		"no route":      {address, "POST /nothing HTTP/1.1\r\nContent-Length: 1000\r\n", 404},
		"bad path":      {address, "POST /indices/%00 HTTP/1.1\r\nContent-Length: 1000\r\n", 400},
		"no method":     {address, "PATCH /indices HTTP/1.1\r\nContent-Length: 1000\r\n", 405},
		"too large":     {address, "POST /indices HTTP/1.1\r\nAuthorization: Bearer " + adminSecret + "\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n", 413},
		"media type":    {address, "POST /indices HTTP/1.1\r\nAuthorization: Bearer " + adminSecret + "\r\nContent-Length: 1000\r\n", 415},
		"preflight":     {address, "OPTIONS /indices HTTP/1.1\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: POST\r\nContent-Length: 1000\r\n", 200},
		"no index":      {address, "POST /indices/none/update HTTP/1.1\r\nAuthorization: Bearer " + adminSecret + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n", 404},
		"no model":      {address, "POST /indices/large/update_with_encoding HTTP/1.1\r\nAuthorization: Bearer " + adminSecret + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n", 400},
		"no room":       {address, "PUT /indices/another/backup HTTP/1.1\r\nAuthorization: Bearer " + adminSecret + "\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n", 403},
		"import":        {address, "PUT /indices/large/import HTTP/1.1\r\nAuthorization: Bearer " + adminSecret + "\r\nContent-Type: application/x-tar\r\nContent-Length: 1000\r\n", 409},
		"backup":        {address, "PUT /indices/large/backup HTTP/1.1\r\nAuthorization: Bearer " + adminSecret + "\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n", 409},
		"rate":          {atRate, "POST /indices HTTP/1.1\r\nContent-Length: 1000\r\n", 429},
		"rate of a 404": {atRate, "POST /nothing HTTP/1.1\r\nContent-Length: 1000\r\n", 429},
		"rate of a 405": {atRate, "PATCH /indices HTTP/1.1\r\nContent-Length: 1000\r\n", 429},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.address == atRate {
				limited.ServeHTTP(httptest.NewRecorder(), fromHere("GET", "/indices"))
			}
			conn, err := net.Dial("tcp", c.address)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, c.request+"Host: localhost\r\n\r\n")
			require.NoError(t, err)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Minute)))
			answer, err := io.ReadAll(conn) // to the end of the connection
			require.NoError(t, err, "%s", answer)
			require.True(t, strings.HasPrefix(string(answer), fmt.Sprintf("HTTP/1.1 %d ", c.status)), "%s", answer)
		})
	}
}

// fromHere is a request whose rate is counted for this machine.
func fromHere(method, path string) *http.Request {
	r := httptest.NewRequest(method, "http://localhost"+path, nil)
	r.RemoteAddr = "127.0.0.1:1"
	return r
}

// storeLarge stores documents the metadata of which is of so many bytes in all.
func storeLarge(t *testing.T, st *store.Store, megabytes int) {
	t.Helper()
	c, err := st.Create(context.Background(), "large", collection.Config{})
	require.NoError(t, err)
	var docs []collection.DocumentInput
	for i := range 2 * megabytes {
		docs = append(docs, collection.DocumentInput{ID: fmt.Sprint("d", i), Vectors: []float32{1, 0}, Dim: 2, Metadata: []byte(`{"t":"` + strings.Repeat("x", 1<<19) + `"}`)})
	}
	_, err = c.Update(context.Background(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
}

// A client that takes its answer slowly but steadily gets all of it, however long that
// lasts; one that takes nothing is cut.
func TestSteadyReadersGetAllOfIt(t *testing.T) {
	if !effort.Long() {
		t.Skip("waits for longer than a stall may last; TestSlowReadersAreCut has a clock of its own")
	}
	const stall = 10 * time.Second
	st := openStore(t, nil)
	storeLarge(t, st, 24)
	s, err := server.New(st.Catalog(), nil, patient(&server.Options{Limits: server.Limits{Stall: stall}}))
	require.NoError(t, err)
	address := listen(t, s, nil)
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /indices/large/metadata HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	r, err := http.ReadResponse(bufio.NewReaderSize(conn, 4096), nil)
	require.NoError(t, err)
	require.Equal(t, 200, r.StatusCode)
	began, got := time.Now(), int64(0)
	for {
		n, err := io.CopyN(io.Discard, r.Body, 512<<10)
		if got += n; err == io.EOF {
			break
		}
		require.NoError(t, err, "after %d of %d bytes and %v", got, r.ContentLength, time.Since(began))
		time.Sleep(stall / 40)
	}
	require.Equal(t, r.ContentLength, got)
	require.Greater(t, time.Since(began), stall)

	stalled, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer stalled.Close()
	_, err = io.WriteString(stalled, "GET /indices/large/metadata HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return strings.Contains(metrics(s), "plaid_http_requests_running 1") // the one that asks
	}, 5*time.Minute, 50*time.Millisecond)
}

func metrics(s *server.Server) string {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/metrics", nil))
	return w.Body.String()
}

// A queue that would last too long is not joined, and those who are sent away are told how
// long it lasts.
func TestQueuesAreBoundedByTheirWait(t *testing.T) {
	b := &blocking{entered: make(chan struct{}, 100), free: make(chan struct{}, 100)}
	s := start(t, b, &server.Options{Limits: server.Limits{Concurrent: 1, Wait: time.Second}})
	hold := func(statuses chan<- int) { statuses <- s.send(t, "POST", "/encode", encoding).status }
	statuses := make(chan int, 10)
	go hold(statuses)
	<-b.entered
	server.HoldTurns(s.Server, 1500*time.Millisecond) // as if they had been held so long until now
	p := s.refused(t, 503, server.CodeBusy, "POST", "/encode", encoding)
	require.Contains(t, p.Message, "too many requests are running: this one could start in")
	require.GreaterOrEqual(t, p.RetryAfter, 2)
	b.free <- struct{}{}
	require.Equal(t, 200, <-statuses)
	var wg sync.WaitGroup
	wg.Go(func() { hold(statuses) }) // nobody is there: it need not wait
	<-b.entered
	b.free <- struct{}{}
	wg.Wait()
	require.Equal(t, 200, <-statuses)
}

// A page that lets its own name point to this machine may not use a service that trusts
// whoever reaches it.
func TestHosts(t *testing.T) {
	named := start(t, nil, &server.Options{Hosts: []string{"plaid.example", "*.plaid.example"}})
	open := start(t, nil, nil)
	all := start(t, nil, &server.Options{Hosts: []string{"*"}})
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:8080": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "::1": 200, "plaid.example": 200, "a.plaid.example:80": 200,
		"evil.example": 403, "evil.example:8080": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "": 403, "eplaid.example": 403,
	} {
		s := named
		require.Equal(t, 200, get(all, host))
		if strings.HasSuffix(strings.Split(host, ":")[0], "plaid.example") {
			require.Equal(t, 403, get(open, host), host)
		} else {
			require.Equal(t, status, get(open, host), host)
		}
		for _, method := range []string{"GET", "OPTIONS"} {
			r := httptest.NewRequest(method, "http://localhost/indices", nil)
			r.Host = host
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			want := status
			if method == "OPTIONS" && status == 200 {
				want = 405
			}
			require.Equal(t, want, w.Code, "%s %q", method, host)
		}
	}
}

// get is the status of a request of the indexes by a name of the service.
func get(s *service, host string) int {
	r := httptest.NewRequest("GET", "/indices", nil)
	r.Host = host
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

// The headers of a backup are those of an index that is there; it is not read for them.
func TestHeadOfABackupReadsNothing(t *testing.T) {
	s := start(t, nil, nil)
	s.addPets(t)
	r := s.send(t, "HEAD", "/indices/pets/backup", nil)
	require.Equal(t, 200, r.status)
	require.Equal(t, "application/octet-stream", r.header.Get("Content-Type"))
	require.Empty(t, r.body)
	require.Empty(t, r.header.Get("Trailer"))
	require.Equal(t, 404, s.send(t, "HEAD", "/indices/none/backup", nil).status)
}
