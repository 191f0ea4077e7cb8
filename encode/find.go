package encode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modeldir"
)

// Model is a model whose settings were read. Its weights may be still to fetch.
type Model struct {
	*modeldir.Config
	// Name is as in [Config].
	Name string

	snapshot *hub.Snapshot // nil: a folder
}

// FindModel reads the settings in the folder of a model, as OpenContext does before it reads the weights; an
// error that it gives OpenContext gives too. Of a hub's model it fetches the settings and the
// tokenizer alone.
func FindModel(ctx context.Context, dir string, o *Options) (*Model, error) {
	options := Options{}
	if o != nil {
		options = *o
	}
	if err := options.check(dir); err != nil {
		return nil, err
	}
	return findModel(ctx, dir, &options)
}

func findModel(ctx context.Context, dir string, o *Options) (*Model, error) {
	over := modeldir.Override{}
	if o.Override != nil {
		over = *o.Override
	}
	for _, l := range []struct {
		n  int
		to **int
	}{{o.QueryLength, &over.QueryLength}, {o.DocumentLength, &over.DocumentLength}} {
		if l.n != 0 {
			*l.to = &l.n
		}
	}
	var names []string
	if o.Backend == ONNXRuntime {
		names = graphs(o)
	}
	if name, ok := hub.Named(dir); ok {
		return fromHub(ctx, name, names, o, &over)
	}
	var c *modeldir.Config
	var err error
	if names == nil {
		c, err = modeldir.Read(dir, &over)
	} else {
		c, err = modeldir.ReadGraph(dir, names, &over)
	}
	if err != nil {
		return nil, suggest(err, dir)
	}
	return &Model{Config: c}, nil
}

// suggest adds to an error of a model that is not there the name of a known one that may have been meant,
// and to that of a folder that is none of a model that it goes before a name.
func suggest(err error, name string) error {
	if _, ok := hub.Parse(name); ok && errors.Is(err, modeldir.ErrIncomplete) {
		if _, serr := os.Stat(filepath.Join(name, "config.json")); errors.Is(serr, fs.ErrNotExist) {
			return fmt.Errorf("%w; a folder goes before the hub's model of that name", err)
		}
	}
	_, serr := os.Stat(name)
	missing := errors.Is(err, hub.ErrRepository) || errors.Is(err, fs.ErrNotExist) && errors.Is(serr, fs.ErrNotExist)
	if near := modeldir.NearestKnown(name); missing && near != "" {
		return fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return err
}

// fromHub reads the settings of a model of a hub.
func fromHub(ctx context.Context, name hub.Name, graphs []string, o *Options, over *modeldir.Override) (*Model, error) {
	h := o.Hub
	if h == nil {
		h = hub.FromEnv().With(o.Logger, nil)
	}
	s, err := h.Open(ctx, name)
	if err != nil {
		return nil, suggest(err, name.Repo)
	}
	c, err := modeldir.ReadFiles(arriving{ctx, s}, graphs, over)
	guessed, lost := s.Guessed()
	if errors.Is(err, modeldir.ErrIncomplete) && lost != nil {
		err = fmt.Errorf("%w; the cache has a part of the model: %w", err, lost)
	}
	if err != nil {
		return nil, err
	}
	if len(guessed) > 0 { // the user has to know: it may be another model then
		w := fmt.Sprintf("%s: taken not to have %s, which the cache lacks: %v",
			name, strings.Join(guessed, ", "), errors.Unwrap(lost))
		c.Warnings = append(c.Warnings, w)
		if h.Logger != nil {
			h.Logger.Warn(w)
		}
	}
	return &Model{Config: c, Name: s.Pinned().String(), snapshot: s}, nil
}

// arriving fetches the files of a snapshot as they are asked for.
type arriving struct {
	ctx context.Context
	*hub.Snapshot
}

func (a arriving) Has(name string) (bool, error) { return a.Snapshot.Has(a.ctx, name) }
func (a arriving) Get(name string) error         { return a.Snapshot.Get(a.ctx, name) }

// tensors are the files with tensors, within the folder.
func (m *Model) tensors() ([]string, error) {
	var names []string
	for _, path := range m.Tensors() {
		name, err := filepath.Rel(m.Dir, path)
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.ToSlash(name))
	}
	return names, nil
}

// Fetch fetches the weights of a hub's model, unless they are there.
func (m *Model) Fetch(ctx context.Context) error {
	if m.snapshot == nil {
		return nil
	}
	names, err := m.tensors()
	if err != nil {
		return err
	}
	if err := m.snapshot.Get(ctx, names...); err != nil {
		return err
	}
	return m.snapshot.Keep()
}

// WeightFiles are the files with the weights of a hub's model: how large they are, and whether they are
// in the cache. A folder has none.
func (m *Model) WeightFiles(ctx context.Context) ([]hub.File, error) {
	if m.snapshot == nil {
		return nil, nil
	}
	names, err := m.tensors()
	if err != nil {
		return nil, err
	}
	return m.snapshot.Files(ctx, names...)
}
