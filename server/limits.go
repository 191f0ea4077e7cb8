package server

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Limits bound what clients can make the service do. Zero values stand for the
// defaults, negative ones for no limit.
type Limits struct {
	// Body is the largest body of a request in bytes; default 100 MiB. It does not
	// hold for uploads of backups and of other engines' indexes, which the disk limits, and
	// for tensors of documents to rerank, which are scored while they come.
	Body int64
	// Decoded is how much memory the body of a request may take when it is read, about;
	// default: half of Bodies. Bodies is how much of that is held at a time, with what
	// searches by words take; default 1 GiB. Uploads take none. What does not fit waits, as
	// long as the wait is expected to be no longer than Wait.
	Decoded, Bodies int64
	// Text is the longest text to encode in bytes; default: a hundredth of Body, or 1 MiB
	// if that is more.
	Text int64
	// Answer is the largest answer in bytes, about; default: a quarter of Answers. Answers
	// is how much of answers is held at a time; default 1 GiB. Of what streams a part is.
	Answer, Answers int64
	// Quick is how long requests that only look may take; default: a tenth of Work. Work
	// is how long the others may, but for what streams; default 300 s.
	Quick, Work time.Duration
	// Stall is how long a client may send, or take, nothing of a body; default 30 s. Who
	// sends, or takes, fewer bytes a second than Transfer may do so for that long; default
	// 4 KiB.
	Stall    time.Duration
	Transfer int64
	// Concurrent is how many requests run at a time, in each of five groups: those
	// that look, those that search and encode, those that write, those that transfer whole
	// indexes, and messages of agents; default 100. Ten times as many may wait, as long as the wait is
	// expected to be no longer than Wait; default 3 s.
	Concurrent int
	Wait       time.Duration
	// Indexes is how many indexes there may be; requests make no more; default 1000.
	Indexes int
	// Rate is how many requests a second a client may send, and Burst how many at
	// once; default: no limit, and twice the rate. Probes are not counted; what is on no
	// route is.
	Rate  float64
	Burst int
}

func setDefault[T int | int64 | time.Duration](v *T, def, unlimited T) {
	switch {
	case *v == 0:
		*v = def
	case *v < 0:
		*v = unlimited
	}
}

const (
	unlimitedBytes = int64(1) << 62
	unlimitedTime  = time.Duration(1) << 62
)

func (l *Limits) setDefaults() {
	setDefault(&l.Body, 100<<20, unlimitedBytes)
	setDefault(&l.Text, max(l.Body/100, 1<<20), unlimitedBytes)
	setDefault(&l.Bodies, 1<<30, unlimitedBytes)
	setDefault(&l.Decoded, l.Bodies/2, unlimitedBytes)
	setDefault(&l.Answers, 1<<30, unlimitedBytes)
	setDefault(&l.Answer, l.Answers/4, unlimitedBytes)
	setDefault(&l.Work, 300*time.Second, unlimitedTime)
	setDefault(&l.Quick, l.Work/10, unlimitedTime)
	setDefault(&l.Stall, 30*time.Second, unlimitedTime)
	setDefault(&l.Transfer, 4<<10, 0)
	setDefault(&l.Concurrent, 100, 1<<30)
	setDefault(&l.Wait, 3*time.Second, unlimitedTime)
	setDefault(&l.Indexes, 1000, math.MaxInt)
	if l.Burst <= 0 {
		l.Burst = burstForRate(l.Rate)
	}
}

// gate lets so many through at a time, and so many wait: no more than a number, and no
// more than get their turn in time.
type gate struct {
	slots      chan struct{}
	waiting    atomic.Int64
	maxWaiting int64
	maxWait    time.Duration // that one may be expected to wait

	mu       sync.Mutex
	meanHold time.Duration // moving mean of how long a turn is held
}

func newGate(n int, longest time.Duration) *gate {
	return &gate{slots: make(chan struct{}, min(n, 1<<20)), maxWaiting: 10 * int64(n), maxWait: longest}
}

// maxRetryAfter bounds what clients are told to wait.
const maxRetryAfter = 10 * time.Minute

// expectedWait is how long the n-th of those that wait will wait, as turns were held until now.
func (g *gate) expectedWait(n int64) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	expected := float64(n) * float64(g.meanHold) / float64(cap(g.slots))
	return time.Duration(min(expected, float64(maxRetryAfter)))
}

// acquire waits for a turn; leave gives it back.
func (g *gate) acquire(ctx context.Context) *Problem {
	select {
	case g.slots <- struct{}{}:
		return nil
	default:
	}
	defer g.waiting.Add(-1)
	n := g.waiting.Add(1)
	switch wait := g.expectedWait(n); {
	case n > g.maxWaiting:
		return problem(CodeBusy, "%d requests wait already", g.maxWaiting).withRetryAfter(wait)
	case wait > g.maxWait:
		return problem(CodeBusy, "a turn would come in %.1f s, and a request waits at most %.1f s", wait.Seconds(), g.maxWait.Seconds()).withRetryAfter(wait)
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return problem(CodeBusy, "no turn came in time: too many requests run").withRetryAfter(g.expectedWait(g.waiting.Load()))
	}
}

func (g *gate) release(duration time.Duration) {
	<-g.slots
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.meanHold == 0 {
		g.meanHold = duration
		return
	}
	g.meanHold += (duration - g.meanHold) / 16
}

// rateLimiter has a token bucket for each client. When there are too many, the one not heard of
// for longest is forgotten.
type rateLimiter struct {
	mu      sync.Mutex // so that a client gets one limiter
	clients *lru.Cache[string, *rate.Limiter]
}

const maxClients = 100_000

func newRateLimiter() *rateLimiter {
	clients, err := lru.New[string, *rate.Limiter](maxClients)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &rateLimiter{clients: clients}
}

// countRequest counts a request of a client that may send so many, as a setting says; nil: it may go on.
func (r *rateLimiter) countRequest(name string, perSecond float64, burst int, setting string) *Problem {
	now := time.Now()
	r.mu.Lock()
	limiter, known := r.clients.Get(name)
	if !known {
		limiter = rate.NewLimiter(rate.Limit(perSecond), burst)
		r.clients.Add(name, limiter)
	}
	if limiter.Limit() != rate.Limit(perSecond) || limiter.Burst() != burst { // its token was changed
		limiter.SetLimitAt(now, rate.Limit(perSecond))
		limiter.SetBurstAt(now, burst)
	}
	r.mu.Unlock()
	turn := limiter.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	turn.CancelAt(now)
	return problem(CodeRateLimited, "more than %g requests a second (%s)", perSecond, setting).withRetryAfter(wait)
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
		return err == nil && slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
	}
	if !isTrusted(host) {
		return host
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(forwarded) {
		if hop = strings.TrimSpace(hop); hop != "" && !isTrusted(hop) {
			return hop
		}
	}
	return host
}

// transferPace is how a client keeps up with a body that it sends, or takes. It may be idle for a
// while, and each byte gives it time again, as the least rate has it, up to that while: who
// goes on below the rate is out of time sooner or later, and who stays above it never is.
// Only time that is waited for the client counts.
type transferPace struct {
	bytesPerSecond int64 // bytes a second
	maxIdle        time.Duration
	remainingIdle  time.Duration // that may go by without a byte
	now            func() time.Time
}

func (s *Server) newPace() transferPace {
	l := &s.options.Limits
	return transferPace{
		bytesPerSecond: l.Transfer,
		maxIdle:        l.Stall,
		remainingIdle:  l.Stall,
		now:            s.now,
	}
}

// keepsUp counts bytes that came, or went, since a time; false: the client is too slow.
func (p *transferPace) keepsUp(bytes int, since time.Time) bool {
	if p.remainingIdle -= p.now().Sub(since); p.remainingIdle < 0 {
		return false
	}
	if bytes == 0 {
		return true
	}
	if p.bytesPerSecond == 0 { // any byte will do
		p.remainingIdle = p.maxIdle
		return true
	}
	more := time.Duration(min(float64(bytes)/float64(p.bytesPerSecond)*float64(time.Second), float64(p.maxIdle)))
	p.remainingIdle = min(p.remainingIdle+more, p.maxIdle)
	return true
}

// slowBodyProblem is the problem of a body that did not come, or too slowly.
func (s *Server) slowBodyProblem() *Problem {
	l := &s.options.Limits
	if l.Transfer == 0 {
		return problem(CodeTimeout, "the body did not come: nothing was sent for %v", l.Stall)
	}
	return problem(CodeTimeout, "the body did not come, or too slowly: %d bytes a second are the least, after %v", l.Transfer, l.Stall)
}
