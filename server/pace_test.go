package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/collection"
)

// clock is a time that goes on when it is told to.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// Whoever stays at the least rate or above it is never too slow, however unevenly; whoever
// stays below is after some times the time that is allowed.
func TestPace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{time.Unix(0, 0)}
		rate := rapid.Int64Range(1, 1<<20).Draw(t, "rate")
		start := transferPace{bytesPerSecond: rate, maxIdle: 30 * time.Second, remainingIdle: 30 * time.Second, now: c.now}
		steady, slow := start, start
		cut := false
		for range rapid.IntRange(1, 300).Draw(t, "times") {
			began := c.at
			c.at = c.at.Add(time.Duration(rapid.Int64Range(0, int64(30*time.Second)).Draw(t, "wait")))
			least := float64(rate) * c.at.Sub(began).Seconds()
			if !steady.keepsUp(int(least*rapid.Float64Range(1, 3).Draw(t, "more"))+1, began) {
				t.Fatalf("a client at its rate is cut after %v", c.at)
			}
			cut = cut || !slow.keepsUp(int(least/2), began)
		}
		if idle := c.at.Sub(time.Unix(0, 0)); !cut && idle > 2*time.Minute {
			t.Fatalf("a client at half of the rate goes on after %v", idle)
		}
	})
	c := &clock{}
	any := transferPace{maxIdle: time.Second, remainingIdle: time.Second, now: c.now}
	for range 100 {
		began := c.at
		c.at = c.at.Add(time.Second)
		require.True(t, any.keepsUp(1, began), "without a rate any byte will do")
	}
	began := c.at
	c.at = c.at.Add(time.Second + 1)
	require.False(t, any.keepsUp(1, began))
}

// slowBody comes a few bytes at a time.
type slowBody struct {
	io.Reader
	clock *clock
	bytes int
	wait  time.Duration
	read  func() // before each
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.read != nil {
		b.read()
	}
	b.clock.at = b.clock.at.Add(b.wait)
	return b.Reader.Read(p[:min(b.bytes, len(p))])
}

func (b *slowBody) Close() error { return nil }

// slowWriter takes a time for each write.
type slowWriter struct {
	*httptest.ResponseRecorder
	clock *clock
	wait  time.Duration
	each  func() // before each write; nil: nothing
}

func (w *slowWriter) Write(p []byte) (int, error) {
	if w.each != nil {
		w.each()
	}
	w.clock.at = w.clock.at.Add(w.wait)
	return w.ResponseRecorder.Write(p)
}

func slowService(t *testing.T) (*Server, *clock) {
	set := &oneCollection{}
	s, err := New(set, nil, &Options{Agents: relay, Limits: Limits{Stall: 10 * time.Second, Transfer: 100, Work: -1, Bodies: 1 << 20, Decoded: 1 << 19}})
	require.NoError(t, err)
	c := &clock{time.Now()}
	s.now = c.now
	return s, c
}

// relay is a tool that answers an agent with what the service answers it.
func relay(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/indices", nil).WithContext(r.Context()))
	})
}

// oneCollection has none, and is asked for names only.
type oneCollection struct{ collection.Catalog }

func (*oneCollection) Names() []string {
	names := make([]string, 5000)
	for i := range names {
		names[i] = fmt.Sprintf("%0100d", i)
	}
	return names
}

func (*oneCollection) Create(context.Context, string, collection.Config) (collection.Collection, error) {
	return nil, collection.ErrName
}

// A client that sends a byte every few seconds never stalls, and holds memory that others
// wait for: it is cut when it was below the least rate for long enough.
func TestDribblingClientsAreCut(t *testing.T) {
	s, c := slowService(t)
	text := `{"name":"` + strings.Repeat("x", 20_000) + `"}`
	send := func(bytes int, wait time.Duration) (status, reads int) {
		body := &slowBody{Reader: strings.NewReader(text), clock: c, bytes: bytes, wait: wait, read: func() { reads++ }}
		r := httptest.NewRequest("POST", "http://localhost/indices", body)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code == http.StatusRequestTimeout {
			require.Contains(t, w.Body.String(), "100 bytes a second")
			require.Contains(t, w.Body.String(), "must send at least")
		}
		require.EqualValues(t, 1<<20, s.bodyMemory.remaining, "what it held is given back")
		return w.Code, reads
	}
	status, reads := send(1, 3*time.Second)
	require.Equal(t, 408, status)
	require.Less(t, reads, 6)
	status, reads = send(200, 3*time.Second) // two thirds of the rate
	require.Equal(t, 408, status)
	require.Less(t, reads, 15)
	status, _ = send(110, time.Second)
	require.Equal(t, 400, status, "a steady one is read to its end; the name is too long")
	status, _ = send(1000, 9900*time.Millisecond)
	require.Equal(t, 400, status)
}

// So is a client that takes its answer too slowly.
func TestSlowReadersAreCut(t *testing.T) {
	for _, request := range []func() *http.Request{
		func() *http.Request { return httptest.NewRequest("GET", "http://localhost/indices", nil) },
		messageOfAgent,
	} {
		slowReadersAreCut(t, request)
	}
}

// messageOfAgent is one that relay answers.
func messageOfAgent() *http.Request {
	r := httptest.NewRequest("POST", "http://localhost/mcp", strings.NewReader("{}"))
	r.Header.Set("Content-Type", mediaJSON)
	return r
}

func slowReadersAreCut(t *testing.T, request func() *http.Request) {
	s, c := slowService(t)
	take := func(wait time.Duration) (body []byte, cut bool) {
		w := &slowWriter{httptest.NewRecorder(), c, wait, nil}
		defer func() {
			if fault := recover(); fault != nil {
				require.Equal(t, http.ErrAbortHandler, fault)
				body, cut = w.Body.Bytes(), true
			}
			require.EqualValues(t, s.answerMemory.capacity, s.answerMemory.remaining)
		}()
		s.ServeHTTP(w, request())
		return w.Body.Bytes(), false
	}
	body, cut := take(9 * time.Second)
	require.False(t, cut)
	require.Greater(t, len(body), 5000*100)
	require.True(t, bytes.HasSuffix(body, []byte("]")))
	s.options.Limits.Transfer = 10 << 10 // a piece of 64 KiB each 6.4 s
	_, cut = take(6 * time.Second)
	require.False(t, cut)
	body, cut = take(9 * time.Second)
	require.True(t, cut)
	require.Less(t, len(body), 5000*100)
}

// Of an agent, what its tools have read is counted beside its own answer, until it has taken that;
// its turn is given back before.
func TestAnswersOfAgentsAreCounted(t *testing.T) {
	s, c := slowService(t)
	writes, least := 0, int64(math.MaxInt64)
	w := &slowWriter{httptest.NewRecorder(), c, 0, func() {
		writes++
		least = min(least, s.answerMemory.capacity-s.answerMemory.remaining)
		require.Empty(t, s.slots[groupAgents].slots)
		require.Empty(t, s.slots[groupLookup].slots)
	}}
	s.ServeHTTP(w, messageOfAgent())
	require.Equal(t, 200, w.Code, w.Body.String())
	require.Greater(t, writes, 3)
	require.EqualValues(t, (agentCopies+1)*w.Body.Len(), least)
	require.EqualValues(t, s.answerMemory.capacity, s.answerMemory.remaining)

	s.options.Limits.Answer = 100 << 10 // the tool's own request is refused, and takes nothing
	w = &slowWriter{httptest.NewRecorder(), c, 0, nil}
	require.NotPanics(t, func() { s.ServeHTTP(w, messageOfAgent()) })
	require.EqualValues(t, s.answerMemory.capacity, s.answerMemory.remaining)
}

// A tool that goes on when its agent has left is answered no more.
func TestToolsOfAgentsThatLeft(t *testing.T) {
	set := &oneCollection{}
	late := make(chan func() int, 1)
	s, err := New(set, nil, &Options{Agents: func(service http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			late <- func() int {
				w := httptest.NewRecorder()
				service.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/indices", nil).WithContext(context.WithoutCancel(r.Context())))
				return w.Code
			}
		})
	}})
	require.NoError(t, err)
	s.ServeHTTP(httptest.NewRecorder(), messageOfAgent())
	require.Equal(t, http.StatusRequestTimeout, (<-late)())
	require.EqualValues(t, s.answerMemory.capacity, s.answerMemory.remaining)
}

// As many messages of agents are answered at a time as requests of any other group.
func TestTurnsOfAgents(t *testing.T) {
	entered, free := make(chan struct{}, 10), make(chan struct{})
	s, err := New(&oneCollection{}, nil, &Options{Limits: Limits{Concurrent: 2, Wait: -1, Work: -1}, Agents: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-free })
	}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() { s.ServeHTTP(httptest.NewRecorder(), messageOfAgent()) })
	}
	turned := func() bool { return s.slots[groupAgents].waiting.Load() == 3 && len(entered) == 2 }
	require.Eventually(t, turned, time.Minute, time.Millisecond)
	close(free)
	wg.Wait()
	require.Len(t, entered, 5)
}
