package main

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // every tier
)

// plainShapes are the tokens of a query, and the number and the range of tokens of documents.
// libraries.py has the same.
var plainShapes = []struct{ query, docs, lo, hi int }{
	{32, 1000, 40, 160}, {32, 64, 256, 256}, {32, 16, 1024, 1024}, {128, 8, 1024, 1024}, {1024, 4, 1024, 1024},
}

// measurePlain times MaxSim over plain vectors of length 1, with documents prepared by Prepare and
// without.
func (b *bench) measurePlain(ctx context.Context) error {
	be, err := maxsim.Select(b.tier)
	if err != nil {
		return err
	}
	for _, kind := range []maxsim.Type{maxsim.F32, maxsim.BF16} {
		for _, prepare := range []bool{true, false} {
			for _, s := range plainShapes {
				if err := b.measurePlainShape(ctx, be, kind, prepare, s.query, s.docs, s.lo, s.hi); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measurePlainShape times one shape.
func (b *bench) measurePlainShape(
	ctx context.Context, be maxsim.Backend, kind maxsim.Type, prepare bool, query, docs, lo, hi int,
) (err error) {
	rng := maxsimtest.Rand(7)
	side := maxsimtest.Side{Type: kind, Unit: true, Lengths: []int{query}}
	q := side.Batch(rng, dim)
	side.Lengths = make([]int, docs)
	for i := range side.Lengths {
		side.Lengths[i] = lo + rng.IntN(hi-lo+1)
	}
	d := side.Batch(rng, dim)
	var o maxsim.Operand = d
	method := "Score"
	if prepare {
		prepared, err := be.Prepare(ctx, d)
		if err != nil {
			return err
		}
		defer prepared.Close()
		o, method = prepared, "Score, documents held"
	}
	c := &maxsim.Call{Q: q, D: o, Terms: maxsim.Terms{Threads: 1}, Scores: make([]float32, docs)}
	work := fmt.Sprintf("plain %s %d %dx%d-%d", kind, query, docs, lo, hi)
	b.measure(work, method, float64(d.Tokens.Rows()), func() {
		if e := be.Score(ctx, c); e != nil {
			err = e
		}
	})
	return err
}
