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

// Model is a model whose settings were read. [Model.Fetch] fetches its weights.
type Model struct {
	*modeldir.Config
	// Name is [Config.Name].
	Name string

	snapshot *hub.Snapshot // nil means that the model is a folder
}

// FindModel reads the settings in the folder of a model, as [OpenContext] does before it reads the
// weights, and returns the same errors. Of a hub's model it fetches only the settings and the
// tokenizer.
func FindModel(ctx context.Context, dir string, o *Options) (*Model, error) {
	options := Options{}
	if o != nil {
		options = *o
	}
	if err := options.resolveBackend(dir); err != nil {
		return nil, err
	}
	return findModel(ctx, dir, &options)
}

// findModel is FindModel for options that are checked.
func findModel(ctx context.Context, dir string, o *Options) (*Model, error) {
	override := modeldir.Override{}
	if o.Override != nil {
		override = *o.Override
	}
	if o.QueryLength != 0 {
		override.QueryLength = new(o.QueryLength)
	}
	if o.DocumentLength != 0 {
		override.DocumentLength = new(o.DocumentLength)
	}
	var graphs []string
	if o.Backend == ONNXRuntime {
		graphs = graphFiles(o)
	}
	if name, ok := hub.ParseUnlessPath(dir); ok {
		return findHubModel(ctx, name, graphs, o, &override)
	}
	var c *modeldir.Config
	var err error
	if graphs == nil {
		c, err = modeldir.Read(dir, &override)
	} else {
		c, err = modeldir.ReadGraph(dir, graphs, &override)
	}
	if err != nil {
		return nil, withSuggestion(err, dir)
	}
	return &Model{Config: c}, nil
}

// withSuggestion adds a cure to the error of a model that was not found: the most similar known name, or, if
// a folder without a model has the name of a hub's model, that folders are preferred.
func withSuggestion(err error, name string) error {
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

// findHubModel reads the settings of a model of a hub.
func findHubModel(
	ctx context.Context, name hub.Name, graphs []string, o *Options, override *modeldir.Override,
) (*Model, error) {
	h := o.Hub
	if h == nil {
		h = hub.FromEnv().WithLogger(o.Logger, nil)
	}
	s, err := h.Open(ctx, name)
	if err != nil {
		return nil, withSuggestion(err, name.Repo)
	}
	c, err := modeldir.ReadFiles(fetchingFiles{ctx, s}, graphs, override)
	guessed, hubErr := s.AssumedMissing()
	if errors.Is(err, modeldir.ErrIncomplete) && hubErr != nil {
		err = fmt.Errorf("%w; the cache has a part of the model: %w", err, hubErr)
	}
	if err != nil {
		return nil, err
	}
	if len(guessed) > 0 { // warn the user: with these files, it would be another model
		w := fmt.Sprintf("%s: taken not to have %s, which the cache lacks: %v",
			name, strings.Join(guessed, ", "), errors.Unwrap(hubErr))
		c.Warnings = append(c.Warnings, w)
		if h.Logger != nil {
			h.Logger.Warn(w)
		}
	}
	return &Model{Config: c, Name: s.Pinned().String(), snapshot: s}, nil
}

// fetchingFiles is a [modeldir] source that fetches files of a snapshot when they are read.
type fetchingFiles struct {
	ctx context.Context
	*hub.Snapshot
}

func (a fetchingFiles) Has(name string) (bool, error) { return a.Snapshot.Has(a.ctx, name) }
func (a fetchingFiles) Get(name string) error         { return a.Snapshot.Get(a.ctx, name) }

// tensorFiles returns the paths of the files with tensors, within the folder, with slashes.
func (m *Model) tensorFiles() ([]string, error) {
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

// Fetch fetches the weights of a hub's model, unless the cache has them.
func (m *Model) Fetch(ctx context.Context) error {
	if m.snapshot == nil {
		return nil
	}
	names, err := m.tensorFiles()
	if err != nil {
		return err
	}
	if err := m.snapshot.Get(ctx, names...); err != nil {
		return err
	}
	return m.snapshot.RecordRevision()
}

// WeightFiles returns the files with the weights of a hub's model: their sizes, and whether the cache
// has them. It returns none for a folder.
func (m *Model) WeightFiles(ctx context.Context) ([]hub.File, error) {
	if m.snapshot == nil {
		return nil, nil
	}
	names, err := m.tensorFiles()
	if err != nil {
		return nil, err
	}
	return m.snapshot.Files(ctx, names...)
}
