// Package encode turns texts into token vectors with a late-interaction model:
// a folder as models are published in, and no other program.
//
// [Open] reads the folder: its settings ([modeldir]), its tokenizer
// ([tokenizer]) and its weights ([weights]), which [native] computes with.
// [Encoder.Query] and [Encoder.Queries] encode queries, [Encoder.Documents] a
// stream of documents, [Spool] the same into a file that an index can be built
// from and that goes on where a process was ended. Vectors of a text depend on
// the text and the model alone: not on other texts, threads or the processor.
//
// [JSONL] and [Reader] read texts; [Passages] parts long ones.
package encode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/encode/remote"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Precision is how products with weights are computed.
type Precision = native.Precision

// The precisions. F32 is exact; Int8 is about two and a half times as fast, its
// vectors are about 0.001 of a cosine off. F16 is that of devices, and theirs alone: its
// vectors are so near to those of F32 that either may ask for the other's
// ([Config.Near]).
const (
	F32  = native.F32
	Int8 = native.Int8
	F16  = transformer.F16
)

// The backends: what computes. None ever stands in for another.
const (
	// Native is package [native], and needs nothing else. It is the default.
	Native = "native"
	// Device is a device that was opened, such as a GPU. See [Options.On].
	Device = "device"
	// ONNXRuntime is the library onnxruntime, with any graph that gives token
	// vectors. See package [onnxruntime].
	ONNXRuntime = "onnxruntime"
	// Remote is a server of token vectors. See package [remote].
	Remote = "remote"
)

// backends are the names that [Options.Backend] may have.
func backends() []string { return []string{Native, Device, ONNXRuntime, Remote} }

// Options of Open. The zero value, or nil, is right for most.
type Options struct {
	// Backend names what computes; "" is Native, or Device where On is set. An option that is another
	// backend's is an [engine.ErrBackend].
	Backend string
	// Precision of Native, or which graph of a folder: model.onnx or
	// model_int8.onnx. That of Device is F16, whatever is said here.
	Precision Precision
	// On is the device of Device, opened by [kernels.OpenDevice]. It has to be closed
	// after the encoder. DeviceMemory is how many bytes of its memory the weights and
	// batches may take; 0: what is free.
	On           kernels.Device
	DeviceMemory int64
	// Threads is how many texts are computed at once, by all calls together; 0: one a
	// processor. Of Device: how many processors make ids of texts. Of Remote: how many
	// requests; 0: 4.
	Threads int
	// QueryLength and DocumentLength are in ids, with all that is put around a
	// text; 0: those of the model.
	QueryLength, DocumentLength int
	// Override decides what the folder leaves open or contradicts itself in.
	Override *modeldir.Override
	// Tier names an instruction set of Native; see [native.Options].
	Tier string
	// Library and Graph are of ONNXRuntime: the path of the library, or "" for the one
	// that PLAID_ONNXRUNTIME names; the path of a graph within the folder, where it is
	// not that of the precision.
	Library, Graph string
	// Remote is the server of Remote, and how it is asked.
	Remote *remote.Options
	// Hub is the hub of a model that is given by name, ORG/NAME or ORG/NAME@REVISION; nil means the
	// one that the environment describes, [hub.FromEnv].
	Hub *hub.Hub
	// Pool is how many vectors of a document become one, as [pool.Pooler] does it;
	// 0 and 1: none. Queries are not pooled.
	Pool   int
	Logger *slog.Logger // nil: silent
}

// Config is that of the model, resolved; see [modeldir.Config].
type Config struct {
	modeldir.Config
	// Name is the name of the model at its hub, with the commit: ORG/NAME@COMMIT. It is "" for a
	// folder.
	Name        string `json:"name,omitempty"`
	Backend     string `json:"backend"`
	Precision   string `json:"precision"`
	Pool        int    `json:"pool,omitempty"` // vectors of a document that become one
	Fingerprint string `json:"fingerprint"`    // of all that vectors of documents depend on
	// Near is the fingerprint of the same model in the one other precision whose vectors
	// agree with these to a cosine of .9999, but for one in a thousand; "": there is none.
	Near string `json:"near,omitempty"`
	// Device is what the device says of itself, of the backend of that name.
	Device *transformer.About `json:"device,omitempty"`
}

// Pools reports whether several tokens of a document have one vector, by the model or by
// [Options.Pool].
func (c *Config) Pools() bool { return c.Pool > 1 || c.Pooling != nil }

// QueryLimit says where queries are cut, and how longer ones get through: setting is the name of
// the setting of their length.
func (c *Config) QueryLimit(setting string) string {
	n, most := c.Query.Length, c.Backbone.MaxPositions
	switch {
	case n == most:
		return fmt.Sprintf("%d tokens, the most that the model takes", n)
	case most == 0 || most >= modeldir.Unbounded: // it is not known
		return fmt.Sprintf("the query length (%d); %s raises it", n, setting)
	}
	return fmt.Sprintf("the query length (%d); %s raises it, the model takes %d", n, setting, most)
}

// Role says what a text is. The two are encoded differently.
type Role int

// The roles.
const (
	Query Role = iota
	Document
)

func (r Role) String() string {
	if r == Query {
		return "query"
	}
	return "document"
}

// Encoder turns texts into token vectors. It is safe for concurrent use.
type Encoder struct {
	options Options // that it was opened with
	config  Config
	backend backend
	threads int
	workers *workers

	mu     sync.Mutex
	calls  int // that encode
	uses   int // of the backend: calls, and chunks that nobody may wait for any more
	closed bool
}

// backend is what an encoder computes with.
type backend interface {
	dim() int
	// ready makes a sequence of a text, trimmed and not empty. Several goroutines may.
	ready(r Role, text string) (sequence, error)
	// ahead is how many bytes of text are readied together, by how many goroutines, for
	// what has room in a chunk; a text at least.
	ahead(c *chunk) (bytes, goroutines int)
	// full says that a chunk is best computed now.
	full(c *chunk) bool
	// joins says that a chunk is well computed together with others, of other calls.
	joins(batch []*chunk, c *chunk) bool
	// compute sets the vectors of all texts of some chunks that are kept, in memory
	// that the chunks own. The role is that of the first.
	compute(ctx context.Context, r Role, batch []*chunk) error
	// tokens are those of a text, trimmed and not empty; nil if they are not known.
	tokens(r Role, text string) ([]Token, error)
	// added are the tokens of a query that ready has made a sequence of; nil if they are
	// not known.
	added(s sequence) []Token
	close() error
}

// ErrClosed: the encoder was closed.
var ErrClosed = errors.New("encoder is closed")

// Open reads a model's folder. If there is no such folder, and a hub could have a model of that name,
// the model is found in the hub's cache, and fetched if it is not there. The backend Remote has the
// folder "".
//
// Errors: [*modeldir.ModelError] of the folder; [*hub.Error] of a name; [engine.ErrBackend],
// [engine.ErrNotBuiltIn], [engine.ErrLibrary] and [engine.ErrDevice] of what
// computes, and those of the device; [*remote.Error] of a server.
func Open(dir string, o *Options) (*Encoder, error) {
	return OpenContext(context.Background(), dir, o)
}

// OpenContext is Open with a context, which bounds how long a server or a hub is asked.
func OpenContext(ctx context.Context, dir string, o *Options) (*Encoder, error) {
	if o == nil {
		o = new(Options)
	}
	own := *o
	o = &own
	if err := o.check(dir); err != nil {
		return nil, err
	}
	if o.Backend == Device && o.On == nil {
		return nil, fmt.Errorf("%w: %s needs an opened device", engine.ErrBackend, Device)
	}
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	e := &Encoder{options: own, threads: o.Threads}
	var err error
	if o.Backend == Remote {
		err = e.openRemote(ctx, o)
	} else {
		err = e.openLocal(ctx, dir, o, log)
	}
	if err != nil {
		return nil, err
	}
	e.workers = &workers{e: e, most: e.threads}
	if o.Pool > 1 {
		e.config.Pool = o.Pool
	}
	log.Info("model opened", "dir", dir, "dim", e.Dim(), "backend", e.config.Backend, "precision", e.config.Precision)
	return e, nil
}

// check names the backend, and refuses options that it does not have.
func (o *Options) check(dir string) error {
	if o.Backend == "" {
		if o.Backend = Native; o.On != nil {
			o.Backend = Device
		}
	}
	if !slices.Contains(backends(), o.Backend) {
		return fmt.Errorf("%w: %q, want %s", engine.ErrBackend, o.Backend, strings.Join(backends(), ", "))
	}
	if o.Pool < 0 {
		return fmt.Errorf("%w: pool of %d vectors", engine.ErrBackend, o.Pool)
	}
	const folders = Native + " " + Device + " " + ONNXRuntime
	for _, x := range []struct {
		name string
		set  bool
		of   string // the backends that have it
	}{
		{"a folder", dir != "", folders}, {"a precision", o.Precision != F32 && !(o.Precision == F16 && o.Backend == Device), Native + " " + ONNXRuntime},
		{"a length of queries", o.QueryLength != 0, folders},
		{"a length of documents", o.DocumentLength != 0, folders},
		{"an override", o.Override != nil, folders}, {"a tier", o.Tier != "", Native},
		{"a library", o.Library != "", ONNXRuntime}, {"a graph", o.Graph != "", ONNXRuntime},
		{"a server", o.Remote != nil, Remote}, {"an opened device", o.On != nil, Device}, {"memory of a device", o.DeviceMemory != 0, Device},
	} {
		if x.set && !slices.Contains(strings.Fields(x.of), o.Backend) {
			return fmt.Errorf("%w: %s has no use for %s", engine.ErrBackend, o.Backend, x.name)
		}
	}
	if o.Backend == Remote && o.Remote == nil {
		return fmt.Errorf("%w: %s needs the address of a server", engine.ErrBackend, Remote)
	}
	return nil
}

// Config is that of the model.
func (e *Encoder) Config() Config { return e.config }

// Options are those that it was opened with.
func (e *Encoder) Options() *Options {
	o := e.options
	return &o
}

// Dim is the dimension of the vectors.
func (e *Encoder) Dim() int { return e.backend.dim() }

// Close ends the use of the encoder. Calls after it are [ErrClosed]; those under
// way end as they would have, and the last one gives back what the backend holds.
// It may be called twice.
func (e *Encoder) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	if e.closed = true; e.uses > 0 {
		return nil
	}
	return e.backend.close()
}

func (e *Encoder) usable() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	return nil
}

// ahead is how many chunks a call may have in memory: what there is for all of them is
// shared, and each has at least one that is computed while another is used.
func (e *Encoder) ahead() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(2, queued*e.threads/max(e.calls, 1))
}

// begin begins a call, which done ends.
func (e *Encoder) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.calls++
	e.uses++
	return nil
}

// done ends a call.
func (e *Encoder) done() {
	e.mu.Lock()
	e.calls--
	e.mu.Unlock()
	e.end()
}

// hold is a further use, by who has one; end ends a use.
func (e *Encoder) hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uses++
}

func (e *Encoder) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.uses--; e.uses == 0 && e.closed {
		_ = e.backend.close() // of what nobody uses any more
	}
}

// Token is an id that a vector is computed for.
type Token struct {
	ID    int32
	Piece string
	// Start and End bound the bytes of the text that the token was made of. A
	// token of what is put around a text has an empty range at 0.
	Start, End int
	// Kept says that the vector is used: those of punctuation in documents mostly
	// are not.
	Kept bool
}

// Embedding is a query as vectors: those of the tokens that are kept, one after
// the other.
type Embedding struct {
	Vectors []float32
	Tokens  []Token // all of them, also those that are not kept
	// Dropped is how many tokens at the end of the text were cut off, since it is longer than
	// the model reads; servers do not tell.
	Dropped int
}

// Tokenize gives the tokens of a text as the model sees them: with all that is
// put around it, and without what is cut off. An empty text has none, and neither
// has any of the backend Remote, whose server keeps them to itself.
func (e *Encoder) Tokenize(r Role, text string) ([]Token, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	trimmed, lead := e.trim(r, text)
	if trimmed == "" {
		return nil, nil
	}
	tokens, err := e.backend.tokens(r, trimmed)
	return within(tokens, text, lead), err
}

// within moves the places of tokens by what was trimmed off the beginning of the text.
func within(tokens []Token, text string, lead int) []Token {
	for i := range tokens {
		if t := &tokens[i]; t.End > 0 {
			t.Start, t.End = min(t.Start+lead, len(text)), min(t.End+lead, len(text))
		}
	}
	return tokens
}

// sequence is a text as ids.
type sequence struct {
	ids      []int32
	first    int               // place of the first piece of the text
	pieces   int               // how many there are
	real     int               // ids that are no filling
	attended int               // ids that are attended to
	dropped  int               // pieces that were cut off
	unknown  int               // pieces that the tokenizer does not know, of those that are left
	places   []tokenizer.Token // of the prompt and the text; nil: not asked for
}

// trim is the text without white space around it, where the model has it so, and
// how many bytes were before it; "" for white space alone. White space between a prompt and the
// text stays.
func (e *Encoder) trim(r Role, text string) (string, int) {
	role := &e.config.Document
	if r == Query {
		role = &e.config.Query
	}
	trimmed, lead := trim(text)
	switch {
	case trimmed != "" && e.config.KeepSpace:
		return text, 0
	case trimmed != "" && role.Prompt != "":
		return text[:lead+len(trimmed)], 0
	}
	return trimmed, lead
}

// trim is Python's strip, and how many bytes it took from the beginning.
func trim(text string) (string, int) {
	s := strings.TrimLeftFunc(text, modeldir.IsSpace)
	return strings.TrimRightFunc(s, modeldir.IsSpace), len(text) - len(s)
}

// Query encodes a query. An empty one has no vectors.
func (e *Encoder) Query(ctx context.Context, text string) (Embedding, error) {
	out, err := e.Queries(ctx, []string{text})
	if err != nil {
		return Embedding{}, err
	}
	return out[0], nil
}
