package plaid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modelof"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Options of Create and Open. The zero value, or nil, opens an index as it was made.
type Options struct {
	// Passages says how texts longer than a passage are split; texts that fit in one stay whole.
	// nil, and a Window of 0, split a text only if it is longer than the model reads. Tokens are
	// those of the model, unless Passages names another one. A model behind an address does not
	// report its tokens: words are counted then, and nil means 120 to a passage.
	//
	// A document stays one, however many passages it is stored in: it is a hit, with its best
	// passages ([Query.Group]), and Get, Update and Delete take its id. A document without an id
	// gets one of 26 random letters and digits if its text is split.
	Passages *encode.Splitting
	// Whole stores each text without splitting it. A text longer than the model reads is then
	// [ErrTooLong] rather than cut, because no search could find the rest.
	Whole bool
	// Model is the folder of the model that encodes texts, or its name at a hub ([hub.Name]);
	// "": the one that the index names. It is opened when a text is first to be encoded, and
	// by Create at once.
	Model string
	// Hub is the hub of a model that is given by name; nil means the one that the environment
	// describes ([hub.FromEnv]).
	Hub *hub.Hub
	// Encoder, where set, encodes in place of Model. The caller closes it, after the
	// collection.
	Encoder *encode.Encoder
	// Dim is the dimension of the vectors, for Create without a model: documents and
	// queries then come as vectors.
	Dim int
	// ReadOnly opens an index for reading only; other programs may read it too. Later changes by
	// another program are not seen. Nothing is written next to the index: keywords that are out of
	// date are rebuilt in a temporary file ([os.TempDir]).
	ReadOnly bool
	// Bits is how many a component of a vector takes once the collection is large: 1, 2,
	// 4 or 8; 0: 4. See [collection.Growth].
	Bits int
	// Keywords are the settings of searches by words; nil: those that were used before,
	// or words as they are, in all fields.
	Keywords *keywords.Settings
	// AnyModel goes on although the index was made by another model, or does not say by
	// which one: scores mean nothing unless the two are the same but for their files.
	AnyModel bool
	// Growth says when the collection is trained; the zero value is a good choice.
	Growth collection.Growth
	// Sampling says which questions are measured in the background, for [Collection.Stats]; the zero
	// value means none.
	Sampling collection.Sampling
	// LockTimeout is how long to wait for another program that has the index; 0: not at
	// all.
	LockTimeout time.Duration
	// Logger hears of trainings, repairs and faults, of questions that are longer than the model
	// reads, and of texts in a script that it does not know; nil means that no one is told.
	Logger *slog.Logger
}

// Collection is an index file with all that a program needs around it: the encoder that
// makes vectors of texts, the searcher, and the search by words. It is safe for concurrent
// use. What a method that changes it returns is on the disk, and every later call sees it;
// each call is done as a whole or not at all, whatever happens to the program.
//
// It grows from nothing: while it is small vectors are kept almost exactly, and later it is
// trained by itself, beside searches and changes ([collection.Growth]).
type Collection struct {
	path string
	opts Options

	docs *store.Collection
	ix   *index.Index // of a read-only one, else nil: the store opens the file again where it has to

	opening chan struct{} // holds one while the encoder is opened

	mu          sync.Mutex // of the rest
	model       *storage.Model
	encoder     *encode.Encoder // nil: not opened yet
	ownsEncoder bool            // the encoder is not the caller's
	closed      bool
}

// Create makes an empty index at path and opens it.
//
// Errors: [ErrExists] if a file is there, [ErrOption] without a model and a dimension, and
// those of [encode.Open], [index.Build] and Open.
func Create(ctx context.Context, path string, o *Options) (_ *Collection, err error) {
	c := &Collection{path: path, opts: optionsOrDefault(o), opening: make(chan struct{}, 1)}
	defer func() { err = c.toError(err) }()
	if err := c.checkOptions(); err != nil {
		return nil, err
	}
	if c.opts.ReadOnly {
		return nil, fmt.Errorf("%w: an index that is read only cannot be created", ErrOption)
	}
	// What can be refused is, before a model is read.
	build := &index.BuildOptions{Nbits: 8, LockTimeout: c.opts.LockTimeout, Logger: c.opts.Logger}
	if err := index.CanBuild(ctx, path, build); err != nil {
		return nil, err
	}
	dim := c.opts.Dim
	if c.opts.Encoder != nil || c.opts.Model != "" {
		e, err := c.openEncoder(ctx)
		if err != nil {
			return nil, err
		}
		if dim != 0 && dim != e.Dim() {
			err = fmt.Errorf("%w: dimension %d, and the model has %d", ErrOption, dim, e.Dim())
			return nil, errors.Join(err, c.closeEncoder())
		}
		dim, build.Model = e.Dim(), c.model
	}
	if dim == 0 {
		return nil, fmt.Errorf("%w: Create wants a model, or a dimension", ErrOption)
	}
	if err = c.create(ctx, dim, build); err == nil {
		if err = c.open(ctx); err != nil && !errors.Is(err, ErrLocked) { // else another program has found it
			err = errors.Join(err, c.removeCreated())
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.closeEncoder())
	}
	return c, nil
}

// create makes an index file with a codec that needs no training, and without documents.
func (c *Collection) create(ctx context.Context, dim int, build *index.BuildOptions) (err error) {
	if build.Codec, err = codec.Flat(dim); err != nil {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	// The file has none of it.
	dummy, err := vectors.FromDocuments(dim, []vectors.Document{{Tokens: make([]float32, dim)}})
	if err != nil {
		return err
	}
	_, err = index.Train(ctx, c.path, dummy, build)
	return err
}

// removeCreated removes the empty index that was created but could not be opened, unless another program
// has it open or has stored something in it since.
func (c *Collection) removeCreated() (err error) {
	f, err := storage.Open(context.Background(), c.path, storage.Options{Write: true, Logger: c.opts.Logger})
	if err != nil {
		if errors.Is(err, ErrLocked) || errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	v, err := f.Snapshot()
	if err != nil {
		return err
	}
	empty := v.State().Docs == 0
	if err := v.Close(); err != nil || !empty {
		return err
	}
	return f.Remove()
}

// Open opens an index: one that Create has made, or any other, such as plaid index builds.
//
// Errors: [fs.ErrNotExist] and the others of [index.Open]; [ErrLocked] while another
// program has it open, but for those that read it, with ReadOnly. An encoder is opened when
// it is needed; with Options.Encoder, one of another model than that of the index is
// [ErrModel].
func Open(ctx context.Context, path string, o *Options) (_ *Collection, err error) {
	c := &Collection{path: path, opts: optionsOrDefault(o), opening: make(chan struct{}, 1)}
	defer func() { err = c.toError(err) }()
	if err := c.checkOptions(); err != nil {
		return nil, err
	}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	if c.opts.Encoder != nil {
		if _, err := c.openEncoder(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func optionsOrDefault(o *Options) Options {
	if o == nil {
		return Options{}
	}
	return *o
}

func (c *Collection) checkOptions() error {
	switch o := &c.opts; {
	case o.Encoder != nil && o.Model != "":
		return fmt.Errorf("%w: an encoder and the folder of a model: one of them is possible", ErrOption)
	case o.Dim < 0:
		return fmt.Errorf("%w: dimension %d", ErrOption, o.Dim)
	case o.Whole && o.Passages != nil:
		return fmt.Errorf("%w: Passages and Whole exclude each other", ErrOption)
	}
	_, err := collection.Config{Nbits: c.opts.Bits}.Completed()
	if err == nil {
		_, err = c.opts.Growth.Completed()
	}
	if err == nil {
		_, err = c.opts.Sampling.Completed()
	}
	if err == nil && c.opts.Keywords != nil {
		if _, err = c.opts.Keywords.Check(); err != nil {
			return fmt.Errorf("%w: %w", ErrOption, err)
		}
	}
	return optionError(err)
}

func (c *Collection) open(ctx context.Context) error {
	o := &store.Options{
		Growth: c.opts.Growth, Sampling: c.opts.Sampling, LockTimeout: c.opts.LockTimeout, Logger: c.opts.Logger,
		Derive: func(ctx context.Context, path string, write bool, _ collection.Config) (store.Derived, error) {
			kw, err := keywords.Open(ctx, keywords.Path(path), &keywords.Options{
				Settings: c.opts.Keywords, Write: write, LockTimeout: c.opts.LockTimeout, Logger: c.opts.Logger,
			})
			if err != nil {
				return nil, err // and no nil of a type
			}
			return kw, nil
		},
	}
	if !c.opts.ReadOnly {
		docs, err := store.OpenFile(ctx, c.path, collection.Config{Nbits: c.opts.Bits}, o)
		c.docs = docs
		return optionError(err)
	}
	ix, err := index.Open(ctx, c.path, &index.Options{LockTimeout: c.opts.LockTimeout, Logger: c.opts.Logger})
	if err != nil {
		return err
	}
	const only = "index"
	s, err := store.Over(ctx, map[string]store.Opened{only: {Index: ix}}, o)
	if err != nil {
		return optionError(errors.Join(err, ix.Close()))
	}
	c.ix = ix
	c.docs, err = s.Get(only)
	return err
}

// optionError has what the store says of settings as an error of options.
func optionError(err error) error {
	if errors.Is(err, collection.ErrConfig) {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	return err
}

// Close ends searches, finishes the changes that have begun and a training that the
// collection has grown for, which may take as long as building the index, and closes the
// files. Calls after it are [ErrClosed]. It may be called more than once.
func (c *Collection) Close() error {
	c.mu.Lock()
	wasClosed := c.closed
	c.closed = true
	c.mu.Unlock()
	if wasClosed {
		return nil
	}
	ctx := context.Background()
	err := errors.Join(c.docs.Grown(ctx), c.docs.Store().Close(ctx))
	if c.ix != nil {
		err = errors.Join(err, c.ix.Close())
	}
	return errors.Join(err, c.closeEncoder())
}

func (c *Collection) closeEncoder() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.encoder == nil || !c.ownsEncoder {
		return nil
	}
	return c.encoder.Close()
}

// Stats describes the collection, at little cost. The error is [ErrClosed].
func (c *Collection) Stats(ctx context.Context) (collection.Stats, error) {
	st, err := c.docs.Stats(ctx)
	return st, c.toError(err)
}

// Index is the index file, for what this type does not do: facets, exports, checks, a
// training. It is to be read, and trained, but changed by the methods of the collection
// only; it ends with the collection. The error is [ErrClosed].
func (c *Collection) Index() (*index.Index, error) {
	ix, err := c.docs.Index(context.Background())
	return ix, c.toError(err)
}

// Encoder is what makes vectors of texts. Errors are those of [encode.Open]; [ErrOption] if
// neither the options nor the index name a model.
func (c *Collection) Encoder(ctx context.Context) (*encode.Encoder, error) {
	e, err := c.openEncoder(ctx)
	return e, c.toError(err)
}

// openEncoder opens the encoder, unless it is open. That may take long, as where a server is
// asked: who waits for another one's opening does so until his context ends.
func (c *Collection) openEncoder(ctx context.Context) (*encode.Encoder, error) {
	if e, err := c.openedEncoder(); e != nil || err != nil {
		return e, err
	}
	select {
	case c.opening <- struct{}{}:
		defer func() { <-c.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if e, err := c.openedEncoder(); e != nil || err != nil {
		return e, err
	}
	e, m, err := c.openModel(ctx)
	if err != nil {
		return nil, err
	}
	ownsEncoder := c.opts.Encoder == nil
	if _, err := c.splitting(e); err != nil {
		if ownsEncoder {
			err = errors.Join(err, e.Close())
		}
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // meanwhile
		if ownsEncoder {
			return nil, errors.Join(ErrClosed, e.Close())
		}
		return nil, ErrClosed
	}
	c.encoder, c.model, c.ownsEncoder = e, m, ownsEncoder
	return e, nil
}

// openedEncoder is the encoder; nil: it is not open yet.
func (c *Collection) openedEncoder() (*encode.Encoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	return c.encoder, nil
}

// openModel opens the encoder, and says what it is.
func (c *Collection) openModel(ctx context.Context) (*encode.Encoder, *storage.Model, error) {
	indexModel, err := c.modelOfIndex(ctx)
	if err != nil {
		return nil, nil, err
	}
	e, o, dir := c.opts.Encoder, &encode.Options{}, c.opts.Model
	switch {
	case e != nil:
		dir, o = e.Config().Dir, e.Options()
	case dir == "" && indexModel == nil:
		return nil, nil, fmt.Errorf("%w: no model is known that encodes texts: name one with Options.Model", ErrOption)
	case indexModel != nil && !(dir != "" && modelof.IsServer(indexModel.Name)): // with its settings, wherever it is now
		var recorded string
		if recorded, o, err = modelof.Options(indexModel); err != nil {
			return nil, nil, err
		}
		if dir == "" {
			dir = recorded
		}
	}
	if e == nil {
		o.Logger, o.Hub = c.opts.Logger, c.opts.Hub
		if e, err = encode.OpenContext(ctx, dir, o); err != nil {
			return nil, nil, fmt.Errorf("the model: %w", err)
		}
	}
	m, err := modelof.Of(e, dir, o)
	if err == nil && !c.opts.AnyModel {
		m.Near = e.Config().Near
		err = indexModel.CheckQueries(m)
	}
	if err != nil {
		if c.opts.Encoder == nil {
			err = errors.Join(err, e.Close())
		}
		return nil, nil, err
	}
	m.Near = ""
	return e, m, nil
}

// modelOfIndex is what made the vectors that are there; nil: nobody has said.
func (c *Collection) modelOfIndex(ctx context.Context) (*storage.Model, error) {
	if c.docs == nil {
		return nil, nil // it is being created
	}
	v, err := c.docs.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	m := v.Snapshot().Header().Model
	return m, v.Close()
}

// Set is the collection for package server: server.New makes an [net/http.Handler] of it
// and of the encoder. This package does not do so itself, since that would put the service
// into every program. The set ends with the collection, which can be used beside it.
func (c *Collection) Set() collection.Catalog { return c.docs.Store().Set() }

// Backup writes a copy of the index to a file, and checks it. Searches and changes may be
// made meanwhile. A backup that is there is replaced. Errors are those of
// [index.Index.BackupTo].
func (c *Collection) Backup(ctx context.Context, path string) (_ *index.BackupReport, err error) {
	defer func() { err = c.toError(err) }()
	v, err := c.docs.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	ix, err := c.Index()
	if err != nil {
		return nil, err
	}
	return ix.BackupTo(ctx, path, nil)
}

// Len returns the number of documents; one that is stored as passages counts once.
func (c *Collection) Len(ctx context.Context) (int, error) {
	v, err := c.docs.Snapshot(ctx)
	if err != nil {
		return 0, c.toError(err)
	}
	return v.Snapshot().Documents(), v.Close()
}

// toError is an error in the words of this package: it names the file.
func (c *Collection) toError(err error) error {
	switch {
	case errors.Is(err, collection.ErrClosed), errors.Is(err, search.ErrClosed), errors.Is(err, ErrClosed):
		err = ErrClosed
	case err == nil, namesFile(err.Error(), c.path):
		return err
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// namesFile reports whether the text of an error names a file, as a word with a colon after it.
func namesFile(text, path string) bool {
	path += ":"
	return strings.HasPrefix(text, path) || strings.Contains(text, " "+path) || strings.Contains(text, "\n"+path)
}
