package store

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

type growthState struct{}

// build makes the index file of the first documents.
func (w *worker) build(ctx context.Context, src vectors.Source) (*opened, error) {
	c := w.c
	cfg := c.Config()
	flat, err := codec.Flat(src.Dim())
	if err != nil {
		return nil, err
	}
	_, err = index.Build(ctx, c.indexPath(), src, &index.BuildOptions{
		Codec: flat, Seed: cfg.seed(), Threads: c.s.o.Threads, Memory: c.s.o.Memory, Backend: c.s.o.Backend, Logger: c.log,
	})
	if err != nil {
		return nil, err
	}
	o, err := c.openIndex(ctx)
	if err == nil && o == nil {
		err = fmt.Errorf("%s: the file is gone", c.indexPath())
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.opened = o
	c.mu.Unlock()
	return o, nil
}

func (w *worker) grow() {}

func (c *Collection) stopTraining() {}
