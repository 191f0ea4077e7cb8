package service

import (
	"context"
	"io"
	"sync"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server"
)

// Waiting is the collections of a cluster that is not reached yet: until it is given its front,
// it refuses what it is asked, with what it waits for.
type Waiting struct {
	place string

	mu    sync.Mutex
	front *Front
	why   string
}

var (
	_ collection.Set      = (*Waiting)(nil)
	_ collection.Readier  = (*Waiting)(nil)
	_ collection.Restorer = (*Waiting)(nil)
	_ collection.Spread   = (*Waiting)(nil)
)

// Wait waits for a front of a cluster at a place; why says for what.
func Wait(place, why string) *Waiting { return &Waiting{place: place, why: why} }

// Because says what is waited for now.
func (w *Waiting) Because(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = why
}

// Over ends the waiting.
func (w *Waiting) Over(f *Front) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.front = f
}

func (w *Waiting) get() (*Front, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.front == nil {
		return nil, server.NewProblem(server.CodeBusy, w.why, soon, nil)
	}
	return w.front, nil
}

// Ready implements [collection.Readier].
func (w *Waiting) Ready() error {
	f, err := w.get()
	if err != nil {
		return err
	}
	return f.Ready()
}

// Place implements [collection.Set].
func (w *Waiting) Place() string { return w.place }

// Names implements [collection.Set].
func (w *Waiting) Names() []string {
	f, err := w.get()
	if err != nil {
		return nil
	}
	return f.Names()
}

// Get implements [collection.Set].
func (w *Waiting) Get(name string) (collection.Collection, error) {
	f, err := w.get()
	if err != nil {
		return nil, err
	}
	return f.Get(name)
}

// Declare implements [collection.Set].
func (w *Waiting) Declare(ctx context.Context, name string, c collection.Config) (collection.Collection, error) {
	f, err := w.get()
	if err != nil {
		return nil, err
	}
	return f.Declare(ctx, name, c)
}

// Drop implements [collection.Set].
func (w *Waiting) Drop(ctx context.Context, name string) (bool, error) {
	f, err := w.get()
	if err != nil {
		return false, err
	}
	return f.Drop(ctx, name)
}

// Restore implements [collection.Restorer].
func (w *Waiting) Restore(ctx context.Context, name string, in io.Reader) error {
	f, err := w.get()
	if err != nil {
		return err
	}
	return f.Restore(ctx, name, in)
}

// Import implements [collection.Restorer].
func (w *Waiting) Import(ctx context.Context, name, dir string) (*index.ImportReport, error) {
	f, err := w.get()
	if err != nil {
		return nil, err
	}
	return f.Import(ctx, name, dir)
}

// Layout implements [collection.Spread].
func (w *Waiting) Layout() collection.Layout {
	f, err := w.get()
	if err != nil {
		return collection.Layout{Nodes: []collection.Node{}, Collections: []collection.Placement{}}
	}
	return f.Layout()
}
