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

// Limits bound how much clients can make the service do. Zero values stand for the defaults,
// negative ones for no limit.
type Limits struct {
	// Body is the largest body of a request in bytes; default 100 MiB. It does not hold for uploads of
	// backups and of other engines' indexes, which the disk limits, nor for tensors of documents to
	// rerank, which are scored while they arrive.
	Body int64
	// Decoded is about how much memory the decoded body of one request may take; default: half of
	// Bodies. Bodies is the sum for all requests, including the memory of searches by words; default
	// 1 GiB. Uploads take none of it. A request that does not fit waits, if that is expected to take no
	// longer than Wait.
	Decoded, Bodies int64
	// Text is the longest text to encode in bytes; default: a hundredth of Body, or 1 MiB
	// if that is more.
	Text int64
	// Answer is about the largest answer in bytes; default: a quarter of Answers. Answers is the sum of
	// all answers in memory; default 1 GiB. A streamed answer counts with its part in memory.
	Answer, Answers int64
	// Quick bounds the time of requests that only look something up; default: a tenth of Work. Work
	// bounds that of the others, streams apart; default 300 s.
	Quick, Work time.Duration
	// Stall is how long a client may send, or take, no byte of a body; default 30 s. A client that
	// sends, or takes, fewer than Transfer bytes a second may do so for that long; default 4 KiB.
	Stall    time.Duration
	Transfer int64
	// Concurrent is how many requests run at a time in each of five groups: lookups, searches and
	// encoding, writes, transfers of whole indexes, and messages of agents; default 100. Ten times as
	// many may wait, as long as the wait is expected to be no longer than Wait; default 3 s.
	Concurrent int
	Wait       time.Duration
	// Indexes is the number of indexes from which on requests create no more; default 1000.
	Indexes int
	// Rate is how many requests a second a client may send, and Burst how many at once; default: no
	// limit, and twice the rate. Probes are not counted; requests of unknown routes are.
	Rate  float64
	Burst int
}

// setDefault replaces a zero limit by its default, and a negative one by unlimited.
func setDefault[T int | int64 | time.Duration](limit *T, byDefault, unlimited T) {
	switch {
	case *limit == 0:
		*limit = byDefault
	case *limit < 0:
		*limit = unlimited
	}
}

// No limit, and yet far enough from overflow that two of them can be added.
const (
	unlimitedBytes = int64(1) << 62
	unlimitedTime  = time.Duration(1) << 62
)

// setDefaults replaces zero and negative limits. Some defaults depend on limits that are set before them.
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

// gate lets a number of requests run at a time. Others wait for a slot: at most maxWaiting of them, and
// only if the wait is expected to be no longer than maxWait.
type gate struct {
	slots      chan struct{}
	waiting    atomic.Int64
	maxWaiting int64
	maxWait    time.Duration

	mu       sync.Mutex
	meanHold time.Duration // moving mean of how long a slot is held
}

// newGate returns a gate with a number of slots.
func newGate(slots int, maxWait time.Duration) *gate {
	return &gate{
		slots:      make(chan struct{}, min(slots, 1<<20)), // an unlimited number is larger
		maxWaiting: 10 * int64(slots),
		maxWait:    maxWait,
	}
}

// maxRetryAfter bounds the time after which clients are told to try again.
const maxRetryAfter = 10 * time.Minute

// meanWeight is the weight of the past in a moving mean: a new value counts for 1/meanWeight.
const meanWeight = 16

// expectedWait estimates how long the request at a position of the line will wait, from how long slots
// were held until now.
func (g *gate) expectedWait(position int64) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	expected := float64(position) * float64(g.meanHold) / float64(cap(g.slots))
	return time.Duration(min(expected, float64(maxRetryAfter)))
}

// acquire waits for a slot, or returns the answer to a request that gets no slot. release gives the slot back.
func (g *gate) acquire(ctx context.Context) *Problem {
	select {
	case g.slots <- struct{}{}:
		return nil
	default:
	}
	defer g.waiting.Add(-1)
	position := g.waiting.Add(1)
	switch wait := g.expectedWait(position); {
	case position > g.maxWaiting:
		return problem(CodeBusy, "%d requests are waiting already", g.maxWaiting).withRetryAfter(wait)
	case wait > g.maxWait:
		return problem(CodeBusy,
			"too many requests are running: this one could start in %.1f s, and the limit is %.1f s",
			wait.Seconds(), g.maxWait.Seconds()).withRetryAfter(wait)
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return problem(CodeBusy, "too many requests are running: this one could not start in time").
			withRetryAfter(g.expectedWait(g.waiting.Load()))
	}
}

// release gives a slot back that was held for a duration.
func (g *gate) release(duration time.Duration) {
	<-g.slots
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.meanHold == 0 {
		g.meanHold = duration
		return
	}
	g.meanHold += (duration - g.meanHold) / meanWeight
}

// rateLimiter has a token bucket for each client. Beyond maxClients it forgets the client that sent
// nothing for the longest time.
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

// countRequest counts a request of a client, or returns a Problem if the client exceeds its rate.
// setting names the option that sets the rate, for the message.
func (r *rateLimiter) countRequest(client string, perSecond float64, burst int, setting string) *Problem {
	now := time.Now()
	r.mu.Lock()
	limiter, known := r.clients.Get(client)
	if !known {
		limiter = rate.NewLimiter(rate.Limit(perSecond), burst)
		r.clients.Add(client, limiter)
	}
	if limiter.Limit() != rate.Limit(perSecond) || limiter.Burst() != burst { // its token was changed
		limiter.SetLimitAt(now, rate.Limit(perSecond))
		limiter.SetBurstAt(now, burst)
	}
	r.mu.Unlock()
	reserved := limiter.ReserveN(now, 1)
	wait := reserved.DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	reserved.CancelAt(now)
	return problem(CodeRateLimited, "more than %g requests a second (%s)", perSecond, setting).withRetryAfter(wait)
}

// clientAddress returns the address that a request comes from: that of the connection or, if that is a
// trusted proxy, the last address in X-Forwarded-For that is not a trusted proxy's.
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

// transferPace decides whether a client transfers a body fast enough. The client has an idle time,
// which waiting for it uses up and each byte refills at the minimum rate, up to maxIdle. So a client
// below that rate runs out of time sooner or later, and one above it never does.
type transferPace struct {
	bytesPerSecond int64 // the minimum rate. 0 means that any byte refills all of the idle time
	maxIdle        time.Duration
	remainingIdle  time.Duration
	now            func() time.Time
}

// newPace returns the pace for a body, with all of its idle time.
func (s *Server) newPace() transferPace {
	l := &s.options.Limits
	return transferPace{
		bytesPerSecond: l.Transfer,
		maxIdle:        l.Stall,
		remainingIdle:  l.Stall,
		now:            s.now,
	}
}

// keepsUp counts bytes that were transferred since a time, and reports whether the client is still fast
// enough.
func (p *transferPace) keepsUp(bytes int, since time.Time) bool {
	if p.remainingIdle -= p.now().Sub(since); p.remainingIdle < 0 {
		return false
	}
	if bytes == 0 {
		return true
	}
	if p.bytesPerSecond == 0 {
		p.remainingIdle = p.maxIdle
		return true
	}
	seconds := float64(bytes) / float64(p.bytesPerSecond)
	refill := time.Duration(min(seconds*float64(time.Second), float64(p.maxIdle)))
	p.remainingIdle = min(p.remainingIdle+refill, p.maxIdle)
	return true
}

// slowBodyProblem is the answer to a client that sends no body, or sends it too slowly.
func (s *Server) slowBodyProblem() *Problem {
	l := &s.options.Limits
	if l.Transfer == 0 {
		return problem(CodeTimeout, "the body did not arrive: nothing was sent for %v", l.Stall)
	}
	return problem(CodeTimeout,
		"the body did not arrive, or too slowly: after %v a client must send at least %d bytes a second",
		l.Stall, l.Transfer)
}
