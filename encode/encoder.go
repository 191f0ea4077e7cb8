// Package encode turns texts into token vectors with a late-interaction model. It reads the folder
// that a model is published as, and needs no other program.
//
// [Open] reads the folder: its settings ([modeldir]), its tokenizer
// ([tokenizer]) and its weights ([weights]), which [native] computes with.
// [Encoder.Query] and [Encoder.Queries] encode queries, [Encoder.Documents] encodes a
// stream of documents, and [Spool] writes such a stream to a file that an index can be built
// from; a process that was ended resumes from it. The vectors of a text depend only on
// the text and the model, not on other texts, threads or the processor.
//
// [JSONL] and [Reader] read texts; [Passages] splits long ones.
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

// The precisions. F32 is exact. Int8 is about two and a half times as fast, and its
// vectors differ by about 0.001 in cosine. F16 is the precision of devices, and no other
// backend has it. Its vectors are so close to those of F32 that queries of one precision
// may search documents of the other ([Config.Near]).
const (
	F32  = native.F32
	Int8 = native.Int8
	F16  = transformer.F16
)

// The backends, which compute the vectors. No backend ever replaces another silently.
const (
	// Native is package [native], and needs nothing else. It is the default.
	Native = "native"
	// Device is a device that was opened, such as a GPU. See [Options.OpenedDevice].
	Device = "device"
	// ONNXRuntime is the library onnxruntime, with any graph that returns token
	// vectors. See package [onnxruntime].
	ONNXRuntime = "onnxruntime"
	// Remote is a server of token vectors. See package [remote].
	Remote = "remote"
)

// backends returns the names that [Options.Backend] may have.
func backends() []string { return []string{Native, Device, ONNXRuntime, Remote} }

// Options of Open. The zero value, or nil, is right for most.
type Options struct {
	// Backend names the backend. "" means Native, or Device if OpenedDevice is set. An option that
	// belongs to another backend is an [engine.ErrBackend].
	Backend string
	// Precision is the precision of Native, or selects the graph of a folder: model.onnx or
	// model_int8.onnx. Device ignores it and uses F16.
	Precision Precision
	// OpenedDevice is the device of the backend Device, opened by [kernels.OpenDevice]. It has to be
	// closed after the encoder. DeviceMemory limits the bytes that the weights and batches use
	// there. 0 means all that is free.
	OpenedDevice kernels.Device
	DeviceMemory int64
	// Threads is how many texts all calls together compute at once. 0 means one per
	// processor. For Device it is how many processors tokenize texts; for Remote, how many
	// requests run at once, and 0 means 4.
	Threads int
	// QueryLength and DocumentLength are in ids and include the prompt, markers and special
	// tokens around a text. 0 means the lengths of the model.
	QueryLength, DocumentLength int
	// Override sets values that the folder leaves open or contradicts itself in.
	Override *modeldir.Override
	// Tier names an instruction set of Native; see [native.Options].
	Tier string
	// Library and Graph belong to ONNXRuntime. Library is the path of the library. "" means
	// the one that PLAID_ONNXRUNTIME names. Graph is the path of a graph within the folder;
	// "" means the graph of the precision.
	Library, Graph string
	// Remote is the server of the backend Remote, with the settings of its requests.
	Remote *remote.Options
	// Hub is the hub of a model that is given by name, ORG/NAME or ORG/NAME@REVISION. nil means the
	// one that the environment describes, [hub.FromEnv].
	Hub *hub.Hub
	// Pool is how many vectors of a document [pool.Pooler] merges into one. 0 and 1 mean no
	// pooling. Queries are not pooled.
	Pool int
	// Logger may be nil, which means silence.
	Logger *slog.Logger
}

// Config is the resolved configuration of the model; see [modeldir.Config].
type Config struct {
	modeldir.Config
	// Name is the name of the model at its hub, with the commit: ORG/NAME@COMMIT. It is "" for a
	// folder.
	Name      string `json:"name,omitempty"`
	Backend   string `json:"backend"`
	Precision string `json:"precision"`
	// Pool is how many vectors of a document become one.
	Pool int `json:"pool,omitempty"`
	// Fingerprint covers everything that vectors of documents depend on.
	Fingerprint string `json:"fingerprint"`
	// Near is the fingerprint of the same model in another precision, whose vectors agree
	// with these to a cosine of .9999 except for one vector in a thousand. "" means that no
	// precision is that close.
	Near string `json:"near,omitempty"`
	// Device describes the device of the backend Device.
	Device *transformer.About `json:"device,omitempty"`
}

// Pools reports whether several tokens of a document have one vector, by the model or by
// [Options.Pool].
func (c *Config) Pools() bool { return c.Pool > 1 || c.Pooling != nil }

// QueryLimit returns a phrase for messages: the length at which queries are cut, and how to
// raise it. setting is the name of the option that sets it, as the user types it.
func (c *Config) QueryLimit(setting string) string {
	length, maxLength := c.Query.Length, c.Backbone.MaxPositions
	switch {
	case length == maxLength:
		return fmt.Sprintf("%d tokens, the most that the model takes", length)
	case maxLength == 0 || maxLength >= modeldir.Unbounded: // unknown
		return fmt.Sprintf("the query length (%d); %s raises it", length, setting)
	}
	return fmt.Sprintf("the query length (%d); %s raises it, the model takes %d", length, setting, maxLength)
}

// Role is the use of a text: queries and documents are encoded differently.
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
//
// Invariants, under mu:
//
//  1. backendUses counts the calls that encode and the chunks that are queued or computed. A
//     chunk may outlive its call.
//  2. The backend is closed once: by Close if backendUses is 0, else when it falls to 0.
type Encoder struct {
	options Options // as passed to Open
	config  Config
	backend backend
	threads int
	workers *workers

	mu           sync.Mutex
	runningCalls int // calls that encode
	backendUses  int // uses of the backend, see 1
	closed       bool
}

// backend computes the vectors of an encoder.
type backend interface {
	dimension() int
	// prepare turns a trimmed text that is not empty into a sequence. It is safe for concurrent use.
	prepare(r Role, text string) (sequence, error)
	// readAhead returns how many bytes of text to prepare together for the space that remains in
	// a chunk, and by how many goroutines. At least one text is prepared, whatever its size.
	readAhead(c *chunk) (bytes, goroutines int)
	// isFull reports whether a chunk should be computed without further texts.
	isFull(c *chunk) bool
	// canJoin reports whether a chunk fits into a batch of chunks of other calls.
	canJoin(batch []*chunk, c *chunk) bool
	// compute sets the kept vectors of all texts of a batch, in memory that the chunks own.
	// The role is the role of the first chunk.
	compute(ctx context.Context, r Role, batch []*chunk) error
	// tokenize returns the tokens of a trimmed text that is not empty. nil means that they
	// are unknown.
	tokenize(r Role, text string) ([]Token, error)
	// queryTokens returns the tokens of a query from the sequence that prepare returned; nil
	// means that they are unknown.
	queryTokens(s sequence) []Token
	close() error
}

// ErrClosed reports a call after [Encoder.Close].
var ErrClosed = errors.New("encoder is closed")

// Open reads a model's folder. If the folder does not exist and the name could be that of a
// model at a hub, Open looks in the hub's cache and fetches the model if it is missing there.
// For the backend Remote, dir is "".
//
// Errors: [*modeldir.ModelError] for the folder; [*hub.Error] for a name; [engine.ErrBackend],
// [engine.ErrNotBuiltIn], [engine.ErrLibrary] and [engine.ErrDevice] for the backend, and the
// errors of the device; [*remote.Error] for a server.
func Open(dir string, o *Options) (*Encoder, error) {
	return OpenContext(context.Background(), dir, o)
}

// OpenContext is [Open] with a context, which bounds the requests to a server or a hub.
func OpenContext(ctx context.Context, dir string, o *Options) (*Encoder, error) {
	if o == nil {
		o = new(Options)
	}
	options := *o
	o = &options
	if err := o.resolveBackend(dir); err != nil {
		return nil, err
	}
	if o.Backend == Device && o.OpenedDevice == nil {
		return nil, fmt.Errorf("%w: %s needs an opened device", engine.ErrBackend, Device)
	}
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	e := &Encoder{options: options, threads: o.Threads}
	var err error
	if o.Backend == Remote {
		err = e.openRemote(ctx, o)
	} else {
		err = e.openLocal(ctx, dir, o, log)
	}
	if err != nil {
		return nil, err
	}
	e.workers = &workers{encoder: e, limit: e.threads}
	if o.Pool > 1 {
		e.config.Pool = o.Pool
	}
	log.Info("model opened", "dir", dir, "dim", e.Dim(), "backend", e.config.Backend, "precision", e.config.Precision)
	return e, nil
}

// resolveBackend sets the backend if it is not named, and returns an error for options that
// belong to another backend.
func (o *Options) resolveBackend(dir string) error {
	if o.Backend == "" {
		if o.Backend = Native; o.OpenedDevice != nil {
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
	hasPrecision := o.Precision != F32 && !(o.Precision == F16 && o.Backend == Device)
	for _, option := range []struct {
		name     string
		set      bool
		backends string // that have the option
	}{
		{"a folder", dir != "", folders},
		{"a precision", hasPrecision, Native + " " + ONNXRuntime},
		{"a length of queries", o.QueryLength != 0, folders},
		{"a length of documents", o.DocumentLength != 0, folders},
		{"an override", o.Override != nil, folders},
		{"a tier", o.Tier != "", Native},
		{"a library", o.Library != "", ONNXRuntime},
		{"a graph", o.Graph != "", ONNXRuntime},
		{"a server", o.Remote != nil, Remote},
		{"an opened device", o.OpenedDevice != nil, Device},
		{"memory of a device", o.DeviceMemory != 0, Device},
	} {
		if option.set && !slices.Contains(strings.Fields(option.backends), o.Backend) {
			return fmt.Errorf("%w: %s has no use for %s", engine.ErrBackend, o.Backend, option.name)
		}
	}
	if o.Backend == Remote && o.Remote == nil {
		return fmt.Errorf("%w: %s needs the address of a server", engine.ErrBackend, Remote)
	}
	return nil
}

// Config returns the resolved configuration of the model.
func (e *Encoder) Config() Config { return e.config }

// Options returns a copy of the options that the encoder was opened with.
func (e *Encoder) Options() *Options {
	o := e.options
	return &o
}

// Dim returns the dimension of the vectors.
func (e *Encoder) Dim() int { return e.backend.dimension() }

// Close closes the encoder. Later calls return [ErrClosed]; calls that are running finish
// normally, and the last of them closes the backend. Close may be called twice.
func (e *Encoder) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	if e.closed = true; e.backendUses > 0 {
		return nil
	}
	return e.backend.close()
}

// checkOpen returns ErrClosed after Close.
func (e *Encoder) checkOpen() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	return nil
}

// maxChunks returns how many chunks one call may have in memory. All calls share the limit of
// the encoder, and each has at least two: one is computed while the caller uses the other.
func (e *Encoder) maxChunks() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(2, chunksPerWorker*e.threads/max(e.runningCalls, 1))
}

// beginCall counts a call, which also uses the backend; endCall ends it.
func (e *Encoder) beginCall() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.runningCalls++
	e.backendUses++
	return nil
}

// endCall ends a call that beginCall began.
func (e *Encoder) endCall() {
	e.mu.Lock()
	e.runningCalls--
	e.mu.Unlock()
	e.releaseBackend()
}

// acquireBackend adds a use of the backend. The caller has one already, so the backend is open.
func (e *Encoder) acquireBackend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.backendUses++
}

// releaseBackend ends a use of the backend; the last use after Close closes it.
func (e *Encoder) releaseBackend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.backendUses--; e.backendUses == 0 && e.closed {
		_ = e.backend.close() // Close has returned already: no caller is left for the error
	}
}

// Token is an id that a vector is computed for.
type Token struct {
	ID    int32
	Piece string
	// Start and End bound the bytes of the text that the token was made from. Tokens around a
	// text, such as markers, have an empty range at 0.
	Start, End int
	// Kept reports whether the vector is used. Most models skip punctuation in documents.
	Kept bool
}

// Embedding is an encoded query: the vectors of the kept tokens, one after the other.
type Embedding struct {
	Vectors []float32
	Tokens  []Token // including those that are not kept
	// Dropped is how many tokens were cut off at the end of a text that is longer than the
	// model reads. It is 0 for servers, which do not report it.
	Dropped int
}

// Tokenize returns the tokens of a text as the model sees them: with prompt, markers and
// special tokens, and without the end that is cut off. It returns none for an empty text, and
// none for the backend Remote, whose server does not report them.
func (e *Encoder) Tokenize(r Role, text string) ([]Token, error) {
	if err := e.checkOpen(); err != nil {
		return nil, err
	}
	trimmed, lead := e.trimText(r, text)
	if trimmed == "" {
		return nil, nil
	}
	tokens, err := e.backend.tokenize(r, trimmed)
	return shiftTokens(tokens, text, lead), err
}

// shiftTokens adds lead, the bytes trimmed off the beginning of text, to the ranges of tokens.
func shiftTokens(tokens []Token, text string, lead int) []Token {
	for i := range tokens {
		if t := &tokens[i]; t.End > 0 {
			t.Start, t.End = min(t.Start+lead, len(text)), min(t.End+lead, len(text))
		}
	}
	return tokens
}

// sequence is a text as ids.
type sequence struct {
	ids         []int32
	firstPiece  int               // index in ids of the first piece of prompt and text
	pieces      int               // pieces of prompt and text
	real        int               // ids before the mask tokens that expand a query
	attended    int               // ids that attention reads
	dropped     int               // pieces that were cut off
	unknown     int               // unknown tokens among the remaining pieces
	pieceTokens []tokenizer.Token // the pieces with their ranges, if they were requested
}

// trimText removes the white space around a text if the model does so, and returns how many
// bytes it removed at the beginning. A text of white space becomes "". White space between a
// prompt and the text stays.
func (e *Encoder) trimText(r Role, text string) (string, int) {
	role := &e.config.Document
	if r == Query {
		role = &e.config.Query
	}
	trimmed, lead := stripSpace(text)
	switch {
	case trimmed != "" && e.config.KeepSpace:
		return text, 0
	case trimmed != "" && role.Prompt != "":
		return text[:lead+len(trimmed)], 0
	}
	return trimmed, lead
}

// stripSpace is Python's strip; it also returns how many bytes it removed at the beginning.
func stripSpace(text string) (string, int) {
	s := strings.TrimLeftFunc(text, modeldir.IsSpace)
	return strings.TrimRightFunc(s, modeldir.IsSpace), len(text) - len(s)
}

// Query encodes a query. An empty query has no vectors.
func (e *Encoder) Query(ctx context.Context, text string) (Embedding, error) {
	out, err := e.Queries(ctx, []string{text})
	if err != nil {
		return Embedding{}, err
	}
	return out[0], nil
}
