package server

import (
	"context"
	"encoding/json"
	"time"
)

// WithKeys is for tests.
var WithKeys = withKeys

// Routes are the methods and patterns of all routes of the API.
func Routes(s *Server) []string {
	var all []string
	for _, r := range s.router.routes {
		if !r.servesPage {
			all = append(all, r.method+" "+r.pattern)
		}
	}
	return all
}

// Held is what is held of the budgets.
func Held(s *Server) (bodies, answers int64) {
	held := func(b *budget) int64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.capacity - b.remaining
	}
	return held(s.bodyMemory), held(s.answerMemory)
}

// WaitingForBodies is how many requests wait for memory.
func WaitingForBodies(s *Server) int {
	_, waiting := s.bodyMemory.state()
	return waiting
}

// HoldBodies takes all there is for bodies, until the function that it returns is called.
func HoldBodies(s *Server) func() { return hold(s.bodyMemory, 0) }

// HoldBodiesBut is the same but for so many bytes.
func HoldBodiesBut(s *Server, n int64) func() { return hold(s.bodyMemory, n) }

// HoldAnswers is the same of answers.
func HoldAnswers(s *Server) func() { return hold(s.answerMemory, 0) }

// FillBodies takes what there is for bodies but for what is kept back.
func FillBodies(s *Server) func() {
	b, a := s.bodyMemory, s.bodyMemory.newReservation()
	b.mu.Lock()
	b.grantBytes(&a, b.remaining-b.headroom)
	b.mu.Unlock()
	return a.releaseAll
}

func hold(b *budget, but int64) func() {
	a := b.newReservation()
	if err := a.reserve(context.Background(), b.capacity-but); err != nil {
		panic(err)
	}
	return a.releaseAll
}

// Example is a request that a route takes.
type Example struct{ Method, Pattern, Media, Body string }

// RequestsOf are those of all routes of the API.
func RequestsOf(s *Server) []Example {
	var all []Example
	for _, r := range s.router.routes {
		if !r.servesPage {
			all = append(all, Example{r.method, r.pattern, r.inType, r.example})
		}
	}
	return all
}

// Turns is how many requests have one, or wait for one.
func Turns(s *Server) int {
	n := 0
	for _, g := range s.slots {
		n += len(g.slots) + int(g.waiting.Load())
	}
	return n
}

// HoldTurns sets how long turns were held until now.
func HoldTurns(s *Server, held time.Duration) {
	for _, g := range s.slots {
		g.mu.Lock()
		g.meanHold = held
		g.mu.Unlock()
	}
}

// ReadMatrix reads vectors as a request has them.
func ReadMatrix(text []byte) (Matrix, error) {
	var v vectorsJSON
	if err := json.Unmarshal(text, &v); err != nil {
		return Matrix{}, err
	}
	return v.toMatrix()
}

// WriteMatrix writes vectors as an answer has them.
func WriteMatrix(m Matrix) []byte {
	text, err := json.Marshal(vectorsJSON{Embeddings: rowsJSON{present: true, matrix: m}})
	if err != nil {
		panic(err)
	}
	return text
}

// SearchJSON is the answer to searches with that metadata, as the service writes it and as encoding/json does.
func SearchJSON(metadata ...[]json.RawMessage) (text, reference []byte, err error) {
	out := searchOut{Results: []resultOut{}, Queries: len(metadata), Dropped: 3}
	for i, m := range metadata {
		out.Results = append(out.Results, resultOut{Query: i, IDs: make([]string, len(m)), Scores: make([]float64, len(m)), Metadata: m})
	}
	if text, err = toJSON(out); err == nil {
		reference, err = json.Marshal(out)
	}
	return text, reference, err
}
