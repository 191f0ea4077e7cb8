package server

import (
	"container/list"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound what clients can make the service do. Zero values stand for the
// defaults, negative ones for no limit.
type Limits struct {
	// Body is the largest body of a request in bytes; default 100 MiB. It does not
	// hold for uploads of backups and of other engines' indexes.
	Body int64
	// Bodies is how many bytes of bodies are held at a time; default 1 GiB.
	Bodies int64
	// Answer is the largest answer in bytes, about; default 256 MiB. Answers is how
	// much of answers is held at a time; default 1 GiB. What streams is not counted.
	Answer, Answers int64
	// Quick is how long requests that only look may take; default 30 s. Work is how
	// long the others may, but for what streams; default 300 s.
	Quick, Work time.Duration
	// Stall is how long a client may send, or take, nothing of a body; default 30 s.
	Stall time.Duration
	// Concurrent is how many requests run at a time, in each of three groups: those
	// that look, those that search and encode, and those that write; default 100.
	// Ten times as many may wait.
	Concurrent int
	// Rate is how many requests a second a client may send, and Burst how many at
	// once; default: no limit, and twice the rate. Probes are not counted.
	Rate  float64
	Burst int
	// Upload is the largest upload of a backup or of another engine's index in
	// bytes; default: no limit but the disk.
	Upload int64
}

func orDefault[T int | int64 | time.Duration](v *T, def, unlimited T) {
	switch {
	case *v == 0:
		*v = def
	case *v < 0:
		*v = unlimited
	}
}

const (
	manyBytes = int64(1) << 62
	longTime  = time.Duration(1) << 62
)

func (l *Limits) setDefaults() {
	orDefault(&l.Body, 100<<20, manyBytes)
	orDefault(&l.Bodies, 1<<30, manyBytes)
	orDefault(&l.Answer, 256<<20, manyBytes)
	orDefault(&l.Answers, 1<<30, manyBytes)
	orDefault(&l.Quick, 30*time.Second, longTime)
	orDefault(&l.Work, 300*time.Second, longTime)
	orDefault(&l.Stall, 30*time.Second, longTime)
	orDefault(&l.Concurrent, 100, 1<<30)
	orDefault(&l.Upload, manyBytes, manyBytes)
	if l.Burst <= 0 {
		l.Burst = max(1, int(2*l.Rate))
	}
}

// gate lets so many through at a time, and so many wait.
type gate struct {
	slots   chan struct{}
	waiting atomic.Int64
	queue   int64
}

func newGate(n int) *gate {
	return &gate{slots: make(chan struct{}, min(n, 1<<20)), queue: 10 * int64(n)}
}

// enter waits for a turn; leave gives it back.
func (g *gate) enter(ctx context.Context) *Problem {
	select {
	case g.slots <- struct{}{}:
		return nil
	default:
	}
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > g.queue {
		return problem(CodeBusy, "too many requests wait already").after(time.Second)
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return problem(CodeBusy, "no turn came in time: too many requests run").after(time.Second)
	}
}

func (g *gate) leave() { <-g.slots }

// rateLimit has a token bucket for each client: one that was not heard of for long
// is forgotten, and so is the one not heard of for longest when there are too many.
type rateLimit struct {
	every rate.Limit
	burst int

	mu      sync.Mutex
	clients map[string]*list.Element
	recent  *list.List // of *client, the one heard of last in front
}

type client struct {
	name    string
	limiter *rate.Limiter
}

const maxClients = 100_000

func newRateLimit(perSecond float64, burst int) *rateLimit {
	return &rateLimit{every: rate.Limit(perSecond), burst: burst, clients: map[string]*list.Element{}, recent: list.New()}
}

// take counts a request; it returns how long the client is to wait, 0 if it may go on.
func (r *rateLimit) take(name string, now time.Time) time.Duration {
	r.mu.Lock()
	e := r.clients[name]
	if e == nil {
		if r.recent.Len() >= maxClients {
			oldest := r.recent.Back()
			delete(r.clients, oldest.Value.(*client).name)
			r.recent.Remove(oldest)
		}
		e = r.recent.PushFront(&client{name, rate.NewLimiter(r.every, r.burst)})
		r.clients[name] = e
	} else {
		r.recent.MoveToFront(e)
	}
	limiter := e.Value.(*client).limiter
	r.mu.Unlock()
	turn := limiter.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait > 0 {
		turn.CancelAt(now)
	}
	return wait
}

// clientAddress is who a request comes from: the address of the connection, or, where
// that is a trusted proxy, the last address in X-Forwarded-For that is none.
func clientAddress(r *http.Request, trusted []netip.Prefix) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "local" // a Unix socket
	}
	isTrusted := func(host string) bool {
		a, err := netip.ParseAddr(host)
		if err != nil {
			return false
		}
		for _, p := range trusted {
			if p.Contains(a.Unmap()) {
				return true
			}
		}
		return false
	}
	if !isTrusted(host) {
		return host
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(forwarded) - 1; i >= 0; i-- {
		hop := strings.TrimSpace(forwarded[i])
		if hop == "" {
			continue
		}
		if !isTrusted(hop) {
			return hop
		}
	}
	return host
}

// body is the body of a request: limited in length, in what it takes of the budget of
// all bodies, and in how long a client may send nothing.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
	budget  *atomic.Int64 // what is left for all bodies; nil: not counted
	taken   int64
	ended   bool
	until   time.Time // no read may last longer; zero: no such limit
}

var errBodies = problem(CodeBusy, "the service holds too many large bodies now").after(time.Second)

func (b *body) Read(p []byte) (int, error) {
	end := time.Now().Add(b.stall)
	if !b.until.IsZero() && b.until.Before(end) {
		end = b.until
	}
	_ = b.control.SetReadDeadline(end) // not every server has deadlines
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		// From here on the connection is watched for its end, without a limit.
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	if b.budget != nil && n > 0 {
		b.taken += int64(n)
		if b.budget.Add(-int64(n)) < 0 {
			return 0, errBodies
		}
	}
	return n, err
}

// spend counts bytes of the answer before they are held. All of them are given back when
// the request has ended.
func (q *request) spend(bytes int) error {
	most := q.s.o.Limits.Answer
	if int64(bytes) > most-q.answered {
		return problem(CodeTooLarge, "the answer has more than %d bytes: ask for less at a time", most)
	}
	q.answered += int64(bytes)
	if q.s.answers.Add(-int64(bytes)) < 0 {
		return problem(CodeBusy, "the service holds too many large answers now").after(time.Second)
	}
	return nil
}

// release gives back what the body took of the budget. What was not read of it the
// server of net/http throws away; a client may not be slow then either.
func (b *body) release() {
	if b.budget != nil {
		b.budget.Add(b.taken)
	}
	if !b.ended {
		_ = b.control.SetReadDeadline(time.Now().Add(b.stall))
	}
}
