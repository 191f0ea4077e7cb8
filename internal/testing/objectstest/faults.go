package objectstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// Fault is the fault of a request or of its answer.
type Fault int

// Faults. Busy, Broken, Refused and Denied are answers: before a request, they replace it, and it is not
// performed.
const (
	None    Fault = iota
	Busy          // 503
	Broken        // 500
	Refused       // 412
	Denied        // 403
	Lost          // the connection breaks
	Late          // it is delayed by some milliseconds
	Cut           // half of the body arrives, then the connection breaks
	Twice         // only before: the request arrives twice, and one of the answers is sent
)

// Faulty is a service behind a network with faults.
type Faulty struct {
	Next http.Handler
	// Before chooses the fault of a request before it is performed, and After that of its
	// answer (2xx) before it is sent. Both may be nil, and are called concurrently.
	Before, After func(r *http.Request) Fault
}

// decide calls choose, which may be nil.
func decide(choose func(*http.Request) Fault, r *http.Request) Fault {
	if choose == nil {
		return None
	}
	return choose(r)
}

// ServeHTTP implements http.Handler.
func (f *Faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch fault := decide(f.Before, r); fault {
	case None:
	case Late:
		sleepRandomly()
	case Cut:
		r.Body = &half{r.Body, r.ContentLength / 2}
	case Twice:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		copied := r.Clone(r.Context())
		copied.Body = io.NopCloser(bytes.NewReader(body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		first, second := httptest.NewRecorder(), httptest.NewRecorder()
		f.Next.ServeHTTP(first, r)
		f.Next.ServeHTTP(second, copied)
		sendAnswer(w, []*httptest.ResponseRecorder{first, second}[rand.IntN(2)], None)
		return
	default:
		answerFault(w, fault)
		return
	}
	answer := httptest.NewRecorder()
	f.Next.ServeHTTP(answer, r)
	fault := None
	if answer.Code/100 == 2 {
		fault = decide(f.After, r)
	}
	sendAnswer(w, answer, fault)
}

// answerFault sends the answer of a fault.
func answerFault(w http.ResponseWriter, f Fault) {
	switch f {
	case Busy:
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
	case Broken:
		refuse(w, http.StatusInternalServerError, "InternalError")
	case Refused:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case Denied:
		refuse(w, http.StatusForbidden, "AccessDenied")
	default:
		panic(http.ErrAbortHandler)
	}
}

// sendAnswer sends an answer with a fault.
func sendAnswer(w http.ResponseWriter, a *httptest.ResponseRecorder, f Fault) {
	body := a.Body.Bytes()
	switch f {
	case None, Twice:
	case Late:
		sleepRandomly()
	case Cut:
		if len(body) == 0 {
			panic(http.ErrAbortHandler)
		}
	default:
		answerFault(w, f)
		return
	}
	for name, values := range a.Header() {
		w.Header()[name] = values
	}
	if w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(a.Code)
	if f == Cut {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

// sleepRandomly delays a request or an answer.
func sleepRandomly() { time.Sleep(time.Duration(1+rand.IntN(30)) * time.Millisecond) }

// half is a body that ends too early.
type half struct {
	io.ReadCloser
	remaining int64
}

var errCut = errors.New("the connection broke")

func (h *half) Read(p []byte) (int, error) {
	if h.remaining <= 0 {
		return 0, errCut
	}
	n, err := h.ReadCloser.Read(p[:min(int64(len(p)), h.remaining)])
	h.remaining -= int64(n)
	return n, err
}

// Chance chooses random faults, for a share of the requests and of the answers, and counts them.
type Chance struct {
	mu    sync.Mutex
	r     *rand.Rand
	share float64
	done  map[Fault]int
}

// NewChance returns random faults of a seed.
func NewChance(seed uint64, share float64) *Chance {
	return &Chance{r: rand.New(rand.NewPCG(seed, 24)), share: share, done: map[Fault]int{}}
}

// Before is a [Faulty.Before].
func (c *Chance) Before(r *http.Request) Fault {
	return c.drawFault(r, Busy, Broken, Refused, Lost, Late, Cut, Twice)
}

// After is a [Faulty.After].
func (c *Chance) After(r *http.Request) Fault {
	return c.drawFault(r, Busy, Broken, Refused, Lost, Late, Cut)
}

// drawFault chooses a fault among candidates.
func (c *Chance) drawFault(r *http.Request, candidates ...Fault) Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.r.Float64() >= c.share {
		return None
	}
	f := candidates[c.r.IntN(len(candidates))]
	if f == Refused && r.Method == http.MethodGet { // a get has no condition
		f = Busy
	}
	c.done[f]++
	return f
}

// String returns the number of faults of each kind.
func (c *Chance) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("busy %d, broken %d, refused %d, lost %d, late %d, cut %d, twice %d",
		c.done[Busy], c.done[Broken], c.done[Refused], c.done[Lost], c.done[Late], c.done[Cut], c.done[Twice])
}
