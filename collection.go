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

// Options are the options of Create and Open. The zero value, or nil, opens an index with the settings in it.
type Options struct {
	// Passages says how texts are split that are longer than a passage. A nil Passages, or a Window of 0, splits a text
	// only if it is longer than the model reads. Tokens are those of the model, unless Passages names another one. A
	// model behind an address does not report its tokens: words are counted then, and a nil Passages means 120 words to
	// a passage.
	//
	// A document stays one document, however many passages it is stored in: it is one hit, with its best passages
	// ([Query.Group]), and Get, Update and Delete take its id. If the text of a document without an id is split, the
	// document gets an id of 26 random letters and digits.
	Passages *encode.Splitting
	// Whole stores each text without splitting it. A text that is longer than the model reads is [ErrTooLong] then. It
	// is not cut, because no search could find the rest.
	Whole bool
	// Model is the folder of the model that encodes texts, or its name at a hub ([hub.Name]). "" means the model that
	// the index names. Create opens it at once, Open when the first text has to be encoded.
	Model string
	// Hub is the hub for a model with a name. A nil Hub is the one that the environment describes ([hub.FromEnv]).
	Hub *hub.Hub
	// Encoder encodes texts instead of Model, if it is not nil. The caller closes it, after the collection.
	Encoder *encode.Encoder
	// Dim is the dimension of the vectors, for Create without a model: documents and queries then come as vectors.
	Dim int
	// ReadOnly opens an index for reading only, which other programs may do at the same time. Later changes by another
	// program are not seen. Nothing is written next to the index: keywords that are out of date are rebuilt in a
	// temporary file ([os.TempDir]).
	ReadOnly bool
	// Bits is the number of bits of a vector's component once the collection is large: 1, 2, 4 or 8. 0 means 4. See
	// [collection.Growth].
	Bits int
	// Keywords are the settings of searches by words. A nil Keywords means those that were used before, or else words
	// as they are, in all fields.
	Keywords *keywords.Settings
	// AnyModel allows a model that the index does not name as its own. Scores are meaningless unless both are the same
	// model in different files.
	AnyModel bool
	// Growth says when the collection is trained; the zero value is a good choice.
	Growth collection.Growth
	// Sampling says which questions are measured in the background, for [Collection.Stats]. The zero value means none.
	Sampling collection.Sampling
	// LockTimeout is how long to wait for another program that has the index open. 0 means not at all.
	LockTimeout time.Duration
	// Logger logs trainings, repairs and faults, questions that are longer than the model reads, and texts in a script
	// that the model does not know. A nil Logger logs nothing.
	Logger *slog.Logger
}

// Collection is an index file together with its encoder, its searcher and its word index. It is safe for concurrent
// use. When a method that changes it returns, the change is on the disk, and later calls see it. Each change is made as
// a whole or not at all, even if the program dies.
//
// A collection may begin empty. While it is small, its vectors are stored almost exactly. Later it is trained in the
// background, while searches and changes go on ([collection.Growth]).
type Collection struct {
	path string
	opts Options

	docs *store.Collection
	ix   *index.Index // of a read-only collection; otherwise nil, since the store may have to open the file again

	opening chan struct{} // a slot, held while the encoder is opened

	closeOnce func() error
	calls     sync.WaitGroup  // calls that have the file open; Close waits for them
	alive     context.Context // ends with the collection, and ends its reads
	endReads  context.CancelFunc

	mu          sync.Mutex // guards the fields below
	model       *storage.Model
	encoder     *encode.Encoder // nil until it is opened
	ownsEncoder bool            // Close closes the encoder
	closed      bool
}

// Create creates an empty index at path and opens it.
//
// Errors: [ErrExists] if the file exists, [ErrOption] if there is neither a model nor a dimension, and those of
// [encode.Open], [index.Build] and Open.
func Create(ctx context.Context, path string, o *Options) (_ *Collection, err error) {
	c := newCollection(path, o)
	defer func() { err = c.toError(err) }()
	if err := c.checkOptions(); err != nil {
		return nil, err
	}
	if c.opts.ReadOnly {
		return nil, fmt.Errorf("%w: ReadOnly does not go with Create", ErrOption)
	}
	// Refuse what can be refused before the model is opened, which may take long.
	const flatBits = 8 // of codec.NewFlat
	build := &index.BuildOptions{Nbits: flatBits, LockTimeout: c.opts.LockTimeout, Logger: c.opts.Logger}
	if err := index.CanBuild(ctx, path, build); err != nil {
		return nil, err
	}
	// Find the dimension, from the model if there is one.
	dim := c.opts.Dim
	if c.opts.Encoder != nil || c.opts.Model != "" {
		e, err := c.openEncoder(ctx)
		if err != nil {
			return nil, err
		}
		if dim != 0 && dim != e.Dim() {
			err = fmt.Errorf("%w: Dim is %d, and the model has %d dimensions: leave Dim 0", ErrOption, dim, e.Dim())
			return nil, errors.Join(err, c.closeEncoder())
		}
		dim, build.Model = e.Dim(), c.model
	}
	if dim == 0 {
		return nil, fmt.Errorf("%w: set Model, Encoder or Dim to create an index", ErrOption)
	}
	// Create the index. If it cannot be opened, remove it, unless another program has opened it.
	if err = c.create(ctx, dim, build); err == nil {
		if err = c.open(ctx); err != nil && !errors.Is(err, ErrLocked) {
			err = errors.Join(err, c.removeCreated())
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.closeEncoder())
	}
	return c, nil
}

// create creates an index file without documents. Its codec needs no training.
func (c *Collection) create(ctx context.Context, dim int, build *index.BuildOptions) (err error) {
	if build.Codec, err = codec.NewFlat(dim); err != nil {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	// Training needs at least one document, which is not stored.
	dummy, err := vectors.FromDocuments(dim, []vectors.Document{{Tokens: make([]float32, dim)}})
	if err != nil {
		return err
	}
	_, err = index.Train(ctx, c.path, dummy, build)
	return err
}

// removeCreated removes an index that was created but could not be opened, unless another program has it open or has
// stored documents in it.
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

// Open opens an index: one that Create has made, or any other, for example one from plaid index.
//
// Errors: [fs.ErrNotExist] and the others of [index.Open]; [ErrLocked] while another program has the index open, except
// that several programs may have it open with ReadOnly. The encoder is opened when it is needed first. With
// Options.Encoder it is [ErrModel] if that is not the model of the index.
func Open(ctx context.Context, path string, o *Options) (_ *Collection, err error) {
	c := newCollection(path, o)
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

// newCollection returns a collection that is not open yet. A nil o means the zero value.
func newCollection(path string, o *Options) *Collection {
	c := &Collection{path: path, opening: make(chan struct{}, 1)}
	if o != nil {
		c.opts = *o
	}
	c.alive, c.endReads = context.WithCancel(context.Background())
	c.closeOnce = sync.OnceValue(c.closeAll)
	return c
}

// checkOptions returns an error for faulty options.
func (c *Collection) checkOptions() error {
	switch o := &c.opts; {
	case o.Encoder != nil && o.Model != "":
		return fmt.Errorf("%w: set Encoder or Model, not both", ErrOption)
	case o.Dim < 0:
		return fmt.Errorf("%w: Dim is %d", ErrOption, o.Dim)
	case o.Whole && o.Passages != nil:
		return fmt.Errorf("%w: Passages and Whole do not go together", ErrOption)
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

// open opens the index, and the store of this one collection.
func (c *Collection) open(ctx context.Context) error {
	o := &store.Options{
		Growth:      c.opts.Growth,
		Sampling:    c.opts.Sampling,
		LockTimeout: c.opts.LockTimeout,
		Logger:      c.opts.Logger,
		Derive: func(ctx context.Context, path string, write bool, _ collection.Config) (store.Derived, error) {
			kw, err := keywords.Open(ctx, keywords.Path(path), &keywords.Options{
				Settings: c.opts.Keywords, Write: write, LockTimeout: c.opts.LockTimeout, Logger: c.opts.Logger,
			})
			if err != nil {
				return nil, err // a nil *keywords.Index would not be a nil interface
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
	s, err := store.FromIndexes(ctx, map[string]store.OpenIndex{only: {Index: ix}}, o)
	if err != nil {
		return optionError(errors.Join(err, ix.Close()))
	}
	c.ix = ix
	c.docs, err = s.Get(only)
	return err
}

// optionError turns a [collection.ErrConfig] of the store into an [ErrOption].
func optionError(err error) error {
	if errors.Is(err, collection.ErrConfig) {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	return err
}

// Close ends searches and other reads, finishes the changes that have begun and the training that growth has begun, and
// closes the files. That training may take as long as building the index. When Close returns, the file can be opened
// again, unless the caller still holds a snapshot of [Collection.Index] or of [Collection.Catalog]. Later calls return
// [ErrClosed]. Close may be called more than once; concurrent calls wait for the first.
func (c *Collection) Close() error { return c.closeOnce() }

func (c *Collection) closeAll() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	ctx := context.Background()
	err := c.docs.WaitForGrowth(ctx)
	c.endReads()
	err = errors.Join(err, c.docs.Store().Close(ctx))
	c.calls.Wait()
	if c.ix != nil {
		err = errors.Join(err, c.ix.Close())
	}
	return errors.Join(err, c.closeEncoder())
}

// closeEncoder closes the encoder, unless it is the caller's.
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
	done, err := c.beginCall()
	if err != nil {
		return collection.Stats{}, c.toError(err)
	}
	defer done()
	st, err := c.docs.Stats(ctx)
	return st, c.toError(err)
}

// Index returns the index file, for what this type does not do: facets, exports, checks, a training. Use it to read and
// to train only; use the methods of the collection for changes. It ends with the collection. The error is [ErrClosed].
func (c *Collection) Index() (*index.Index, error) {
	ix, err := c.docs.Index(context.Background())
	return ix, c.toError(err)
}

// Encoder returns the encoder, which makes the vectors of texts. Errors are those of [encode.Open], and [ErrOption] if
// neither the options nor the index name a model.
func (c *Collection) Encoder(ctx context.Context) (*encode.Encoder, error) {
	e, err := c.openEncoder(ctx)
	return e, c.toError(err)
}

// openEncoder opens the encoder, unless it is open. Opening may take long, for example if a server has to answer.
// Concurrent callers wait for the one that opens it, or until their own ctx ends.
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
	if c.closed { // while the encoder was being opened
		if ownsEncoder {
			return nil, errors.Join(ErrClosed, e.Close())
		}
		return nil, ErrClosed
	}
	c.encoder, c.model, c.ownsEncoder = e, m, ownsEncoder
	return e, nil
}

// openedEncoder returns the encoder, nil if it has not been opened yet.
func (c *Collection) openedEncoder() (*encode.Encoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	return c.encoder, nil
}

// openModel opens the encoder, and returns it with the description of its model.
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
		return nil, nil, fmt.Errorf("%w: no model is known to encode texts: set Options.Model", ErrOption)
	case indexModel != nil && (dir == "" || !modelof.IsServer(indexModel.Name)):
		// Use the settings of the index's model, wherever the model is now. Those of a server do not fit a folder.
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
	m, err := modelof.Describe(e, dir, o)
	if err == nil && !c.opts.AnyModel {
		m.NearFingerprint = e.Config().Near // for this check only: it is not stored with new vectors
		err = indexModel.CheckQueries(m)
	}
	if err != nil {
		if c.opts.Encoder == nil {
			err = errors.Join(err, e.Close())
		}
		return nil, nil, err
	}
	m.NearFingerprint = ""
	return e, m, nil
}

// modelOfIndex returns the model of the stored vectors, nil if the index names none.
func (c *Collection) modelOfIndex(ctx context.Context) (*storage.Model, error) {
	if c.docs == nil {
		return nil, nil // Create has not made the index yet
	}
	var m *storage.Model
	err := c.read(ctx, func(_ context.Context, v *store.Snapshot) error {
		m = v.Snapshot().Header().Model
		return nil
	})
	return m, err
}

// Catalog returns the collection as a catalog for package server: server.New makes a [net/http.Handler] of it and of
// the encoder. This package does not do so itself, because that would link the service into every program. The catalog
// ends with the collection, and both may be used at the same time.
func (c *Collection) Catalog() collection.Catalog { return c.docs.Store().Catalog() }

// Backup writes a copy of the index to a file, and checks it. Searches and changes may go on meanwhile. An existing
// backup is replaced. Errors are those of [index.Index.BackupTo].
func (c *Collection) Backup(ctx context.Context, path string) (report *index.BackupReport, err error) {
	err = c.read(ctx, func(ctx context.Context, _ *store.Snapshot) error {
		ix, err := c.docs.Index(ctx)
		if err == nil {
			report, err = ix.BackupTo(ctx, path, nil)
		}
		return err
	})
	return report, c.toError(err)
}

// Len returns the number of documents; a document of passages counts once.
func (c *Collection) Len(ctx context.Context) (n int, err error) {
	err = c.read(ctx, func(_ context.Context, v *store.Snapshot) error {
		n = v.Snapshot().Documents()
		return nil
	})
	return n, c.toError(err)
}

// toError turns an error into one of this package, which names the file.
func (c *Collection) toError(err error) error {
	switch {
	case errors.Is(err, collection.ErrClosed), errors.Is(err, search.ErrClosed), errors.Is(err, ErrClosed):
		err = ErrClosed
	case err == nil, namesFile(err.Error(), c.path):
		return err
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// namesFile reports whether the text of an error names a file, as a word that a colon follows.
func namesFile(text, path string) bool {
	path += ":"
	return strings.HasPrefix(text, path) || strings.Contains(text, " "+path) || strings.Contains(text, "\n"+path)
}
