package command

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
)

// encoderSpeed is what a short measurement found.
type encoderSpeed struct {
	Tokens         int64   `json:"tokens"` // of the documents
	TokensASecond  float64 `json:"tokens_a_second"`
	DocumentTokens int     `json:"document_tokens"` // of a document, on average
	Queries        int     `json:"queries"`
	QuerySeconds   float64 `json:"query_seconds"` // the median of one at a time
}

const (
	speedTime    = time.Second // of documents, and of queries, at the least
	speedWarmup  = 3           // queries, and passes of a few documents, before
	speedTexts   = 8           // of a pass, at the least
	speedQueries = 20          // at the least
)

// measureEncoder encodes documents in one stream, and then questions one by one.
func (a *app) measureEncoder(ctx context.Context, e *encode.Encoder) (*encoderSpeed, error) {
	// About as many words as have room, and all of them common.
	words := strings.Repeat("what is measured here are the words of a text like others, and how long they take. ", 32)
	text := words[:min(len(words), 5*e.Config().Document.Length)]
	s := &encoderSpeed{}
	pass := func(least time.Duration) (*encode.Report, time.Duration, error) {
		begin := a.now()
		r := new(encode.Report)
		for _, err := range e.DocumentsReport(ctx, func(yield func(encode.Text, error) bool) {
			for i := 0; i < speedTexts || a.now().Sub(begin) < least; i++ {
				if !yield(encode.Text{Text: text}, nil) {
					return
				}
			}
		}, r) {
			if err != nil {
				return nil, 0, err
			}
		}
		return r, a.now().Sub(begin), nil
	}
	for i := range speedWarmup + 1 {
		least := speedTime
		if i < speedWarmup {
			least = 0
		}
		r, took, err := pass(least)
		if err != nil {
			return nil, err
		}
		s.Tokens, s.DocumentTokens = r.Tokens, int(r.Tokens)/r.Texts
		s.TokensASecond = float64(r.Tokens) / max(took.Seconds(), 1e-9)
	}
	var times []time.Duration
	for begin := a.now(); len(times) < speedWarmup+speedQueries || a.now().Sub(begin) < speedTime && len(times) < 1000; {
		one := a.now()
		if _, err := e.Query(ctx, "how long does it take to encode a question?"); err != nil {
			return nil, err
		}
		times = append(times, a.now().Sub(one))
	}
	times = times[speedWarmup:]
	slices.Sort(times)
	s.Queries, s.QuerySeconds = len(times), times[len(times)/2].Seconds()
	return s, nil
}

// speedText says what computes, and how fast.
func speedText(b *bytes.Buffer, r *modelReport) {
	if d := r.Device; d != nil {
		fmt.Fprintf(b, "runs on:     %s (%s) in %v; %s of weights, %s for batches of up to %s\n", d.Device.Name, d.Device.Model, d.Precision,
			out.Bytes(d.Weights), out.Bytes(d.Batches), out.Plural(d.Tokens, "token"))
	} else if r.Speed != nil {
		fmt.Fprintf(b, "runs on:     the processor in %s\n", r.Precision)
	}
	if s := r.Speed; s != nil {
		fmt.Fprintf(b, "speed:       %s tokens a second, in documents of %s; a query %.2f ms\n", out.Rate(s.TokensASecond),
			out.Plural(s.DocumentTokens, "token"), out.Milliseconds(time.Duration(s.QuerySeconds*float64(time.Second))))
	}
}
