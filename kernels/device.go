package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// EnvDevice is the environment variable that names the device which
// [OpenDevice] opens for "", in place of "cpu".
const EnvDevice = "PLAID_DEVICE"

// AutoDevice is the name that stands for a device if there is one.
const AutoDevice = "auto"

// ErrDeviceClosed says that a device, or an index on it, has been closed.
var ErrDeviceClosed = errors.New("kernels: device closed")

// ErrDeviceMemory says that what a device was to hold does not fit into its memory, or into
// the part of it that may be used.
var ErrDeviceMemory = errors.New("out of device memory")

// PanicError is a panic where a device's requests are carried out: a fault of
// this program and not of the device or of the index. The device takes no more
// requests, and answers each with this error; closing and opening it anew starts
// afresh.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("internal error, the device is not used any more: %v", e.Value)
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// DeviceInfo describes a device that can hold and search an index.
type DeviceInfo struct {
	Name            string `json:"name"`            // to ask for it by, such as "cuda:0"
	Model           string `json:"model"`           // as its maker calls it
	Capability      string `json:"capability"`      // for CUDA the compute capability, such as "9.0"
	Memory          uint64 `json:"memory"`          // bytes
	Multiprocessors int    `json:"multiprocessors"` // how many there are
	PCI             string `json:"pci"`             // the address on the bus
	Driver          string `json:"driver"`          // the newest version of CUDA that the driver knows
	// Unusable says why the device cannot be used, "" if it can.
	Unusable string `json:"unusable,omitempty"`
}

// DeviceKind finds and opens the devices of one kind. A package registers one
// when it is imported.
type DeviceKind interface {
	// Kind is the part of device names before the colon, such as "cuda".
	Kind() string
	// Devices lists what is there. Where nothing is, the error says why.
	Devices() ([]DeviceInfo, error)
	// Open opens the device of a number.
	Open(ctx context.Context, ordinal int) (Device, error)
}

// Device is an opened device. It is safe for concurrent use.
type Device interface {
	Info() DeviceInfo
	// Attach uploads an index, and keeps it until the attachment is closed.
	Attach(ctx context.Context, c Corpus, o AttachOptions) (Attachment, error)
	// Builder returns a backend that finds nearest centroids on the device, with the
	// processor's bits, and leaves the rest to cpu, vectors with a component too large for
	// the device (65504) included. It may be an [EncoderPreparer].
	Builder(cpu Backend) Builder
	// Close frees everything on the device, attachments included. It may be
	// called more than once.
	Close() error
}

// Builder is a backend whose Nearest runs on a device. A call that the device
// fails is an error, as is every later one where the device is lost: what is
// asked of a device is never done by the processor in silence.
type Builder interface {
	Backend
	Preparer
}

// Preparer is a backend to which it matters that centroids stay the same over
// many calls of Nearest.
type Preparer interface {
	// Prepare returns a backend for calls of Nearest with these centroids, which
	// must not change before release is called. On error there is nothing to
	// release.
	Prepare(ctx context.Context, centroids []float32, dim int) (b Backend, release func(), err error)
}

// RowKeeper is a [Builder] that keeps the rows of k-means on the device, so that they are
// copied there once and not in every round.
type RowKeeper interface {
	// KeepRows copies rows of x, a matrix of that many columns, to the device, in the order
	// given. Both slices must not change before they are released. An error that wraps
	// [ErrDeviceMemory] says that there is no room for them; Nearest needs none.
	KeepRows(ctx context.Context, x []float32, dim int, rows []uint32) (KeptRows, error)
}

// KeptRows are n rows on a device, for one goroutine.
type KeptRows interface {
	// Nearest is that of [Backend] for all of the rows: codes and scores are [n]. Now and
	// then it tells tick how many more are done.
	Nearest(ctx context.Context, codes []uint32, scores, centroids []float32, tick func(rows int)) error
	// Means gives each centroid of the last call of Nearest, [k, dim], the direction of the
	// sum of its rows. Centroid c has the rows order[starts[c]:starts[c+1]], by number of the
	// row kept. Sums are of float64, one row after another. A centroid stays that has no
	// rows, or whose sum is no longer than 10⁻¹² for each of them.
	Means(ctx context.Context, centroids []float32, order []uint32, starts []int) error
	// Release frees the rows.
	Release()
}

// TokenEncoder encodes tokens on a device: nearest centroids, residuals and factors, to
// the bit those of package codec. It is safe for concurrent use.
type TokenEncoder interface {
	// EncodeTokens encodes the rows of x. A row that the device cannot encode, because
	// a component is too large for it, has a code of K or more, and nothing else that
	// counts. Errors are as of a [Builder].
	EncodeTokens(ctx context.Context, dst EncodedTokens, x []float32) error
}

// EncodedTokens is where the arrays of n encoded tokens go.
type EncodedTokens struct {
	Codes     []uint32 // [n]
	Residuals []byte   // [n, RowBytes]
	Factors   []int16  // [n], 0 of a token of zeros
	// Errors are the squared distances of the tokens from what is decoded of them, with a
	// sign where the factor was clamped, [n].
	Errors []float64
}

// EncoderPreparer is a [Builder] that encodes tokens as well.
type EncoderPreparer interface {
	// PrepareEncoder is Prepare for calls of EncodeTokens with a codec of uniform
	// levels, whose centroids these are. With unit, rows are scaled to unit length first.
	PrepareEncoder(ctx context.Context, c *Codec, centroids []float32, unit bool) (e TokenEncoder, release func(), err error)
}

// Prepare calls the Prepare of a backend that has one, and otherwise returns
// the backend itself.
func Prepare(ctx context.Context, b Backend, centroids []float32, dim int) (Backend, func(), error) {
	if p, ok := b.(Preparer); ok {
		return p.Prepare(ctx, centroids, dim)
	}
	return b, func() {}, nil
}

// Corpus is what a device must know of a snapshot of an index.
//
// Snapshots of one lineage have documents in common, by ordinal: a document
// never changes, and new ones come at the end. One that was deleted may lose its
// tokens, from one snapshot to the next, and keeps its ordinal, with length 0.
// Where chunks are cut is each snapshot's own affair: additions merge small
// ones. So a device may keep what it has of the documents of a snapshot for the
// next, and must not go by the numbers of chunks.
type Corpus interface {
	Codec() *Codec
	// Lineage changes when documents are renumbered or recoded, or come from
	// another file. Of two snapshots of a lineage either may be the older.
	Lineage() uint64
	Chunks() int
	// ChunkDocs returns the first ordinal and the token offsets of chunk i.
	// Chunks follow one another without gaps.
	ChunkDocs(i int) (first uint32, offsets []uint32)
	// Load returns the arrays of chunk i, checked.
	Load(i int) (*Chunk, error)
	// LiveSet has one bit an ordinal, set for documents that may be returned:
	// they are neither deleted nor empty. A snapshot has one slice, which does
	// not change and tells it from other snapshots.
	LiveSet() (set []uint64, count int)
	// Guard calls read and makes an error of a fault while it reads the arrays
	// of chunks, which may be mapped pages of a file.
	Guard(read func() error) error
}

// AttachOptions say how an index is put on a device.
type AttachOptions struct {
	// Memory is how many bytes of the device may be used; 0: what is free, less
	// a reserve. An index that does not fit is streamed through.
	Memory int64
	// Bound is of the errors of the scan. With [Worst] a device that has FP8
	// products scans with bytes instead, whose roundings all have a bound; a fifth
	// slower where the scan takes the time.
	Bound Bound
	// Progress, where set, is told how many of the tokens are there.
	Progress func(done, total int64)
}

// Attachment is an index on a device. It is safe for concurrent use.
type Attachment interface {
	// Search answers queries on a snapshot of the attached index. Those of one
	// call, and of other goroutines, may share launches; results do not depend on
	// it. Memory of the queries is not used after it has returned.
	Search(ctx context.Context, c Corpus, qs []DeviceQuery) ([]DeviceAnswer, error)
	// Plan says what memory is used for.
	Plan() MemoryPlan
	Close() error
}

// DeviceQuery asks for the best documents. Ordinals are those of the corpus.
type DeviceQuery struct {
	Vectors []float32 // [Lq, dim]
	Weights []float32 // [Lq]; nil: all 1
	K       int
	// Docs, where not nil, are the documents to score, ascending; Allowed, where
	// not nil, has a bit for each that may be returned. Neither: all live ones.
	Docs    []uint32
	Allowed []uint64
	// Probes, where not 0, restricts the search to documents that have a token
	// in one of that many best centroids of a query token; if they are fewer
	// than K, all are searched.
	Probes int
	// Keep bounds how many of these documents get a score: those that gain most by probed
	// centroids. 0 means no bound.
	Keep int
}

// DeviceAnswer is the K best documents, score descending, then ordinal
// ascending.
type DeviceAnswer struct {
	Docs   []uint32    // ordinals, best first
	Scores []float32   // of Docs
	Stats  DeviceStats // what the search did
}

// DeviceStats says what a device did. Those of several searches add up.
type DeviceStats struct {
	Device      string `json:"device"`           // its name
	Searches    int64  `json:"searches"`         // queries that were answered
	Launches    int64  `json:"launches"`         // batches that a search was part of
	Batched     int64  `json:"batched_searches"` // that shared launches with others
	ScanTokens  int64  `json:"scan_tokens"`      // tokens that got a score in the first pass
	Candidates  int64  `json:"candidates"`       // of probed searches
	ScanDocs    int64  `json:"scan_docs"`        // those of them that got a score
	Widened     int64  `json:"widened"`          // probed searches with too few candidates, repeated over all documents
	RefinedDocs int64  `json:"refined_docs"`     // documents scored again in float precision
	Retried     int64  `json:"retried"`          // searches repeated with a wider margin
	InDoubt     int64  `json:"in_doubt"`         // whose last places the error of the scan leaves open
	// BoundShare is how much of the bound of its errors a scan has used up at most.
	BoundShare float64 `json:"bound_share"`
	// Streamed counts the bytes that crossed the bus because the index does not
	// fit into the device's memory; 0 where it is resident.
	Streamed int64       `json:"streamed_bytes"`
	Times    DeviceTimes `json:"times"` // of the stages
}

// DeviceTimes are a search's share of the times of its batch, so that those of
// all searches of a batch add up to the batch's, each counted once: Wait in the
// queue, Transfer for copies, launches and the host, the others on the device. Of
// searches with probes that shared launches Scan has TopK and Fine of most.
// Total is a search's share of the elapsed time of its call.
type DeviceTimes struct {
	Wait      time.Duration `json:"wait_ns"`      // for the device
	Transfer  time.Duration `json:"transfer_ns"`  // of queries and results, and launches
	Centroids time.Duration `json:"centroids_ns"` // scores of all centroids
	Probe     time.Duration `json:"probe_ns"`     // choosing centroids, and marking their documents
	Scan      time.Duration `json:"scan_ns"`      // scores of tokens
	TopK      time.Duration `json:"topk_ns"`      // the best of all documents
	Fine      time.Duration `json:"fine_ns"`      // scores in float precision
	Total     time.Duration `json:"total_ns"`     // all of it
}

// Add adds the figures of another search.
func (s *DeviceStats) Add(o DeviceStats) {
	if s.Device == "" {
		s.Device = o.Device
	}
	s.Searches += o.Searches
	s.Launches += o.Launches
	s.Batched += o.Batched
	s.ScanTokens += o.ScanTokens
	s.Candidates += o.Candidates
	s.ScanDocs += o.ScanDocs
	s.Widened += o.Widened
	s.RefinedDocs += o.RefinedDocs
	s.Retried += o.Retried
	s.InDoubt += o.InDoubt
	s.BoundShare = max(s.BoundShare, o.BoundShare)
	s.Streamed += o.Streamed
	t, u := &s.Times, &o.Times
	t.Wait += u.Wait
	t.Transfer += u.Transfer
	t.Centroids += u.Centroids
	t.Probe += u.Probe
	t.Scan += u.Scan
	t.TopK += u.TopK
	t.Fine += u.Fine
	t.Total += u.Total
}

// MemoryPlan says what an attachment needs of a device's memory, in bytes.
type MemoryPlan struct {
	Tokens    int64 `json:"tokens"`
	Slots     int64 `json:"token_slots"` // with documents filled up to whole tiles
	Codec     int64 `json:"codec"`
	Words     int64 `json:"words"` // code and factor
	Residuals int64 `json:"residuals"`
	Tables    int64 `json:"tables"` // documents and tiles
	Staging   int64 `json:"staging"`
	Query     int64 `json:"query_workspace"` // for one group of 32 query tokens
	Limit     int64 `json:"limit"`
	Resident  bool  `json:"resident"` // else streamed, Pieces at a time
	Pieces    int   `json:"pieces"`
}

// Index is the memory of the index itself.
func (p *MemoryPlan) Index() int64 { return p.Codec + p.Words + p.Residuals + p.Tables }

var (
	kindsMu sync.Mutex
	kinds   = map[string]DeviceKind{}
)

// RegisterDevices makes the devices of a kind available. It panics on a kind
// registered twice.
func RegisterDevices(k DeviceKind) {
	kindsMu.Lock()
	defer kindsMu.Unlock()
	if _, dup := kinds[k.Kind()]; dup {
		panic("kernels: devices registered twice: " + k.Kind())
	}
	kinds[k.Kind()] = k
}

func deviceKinds() []DeviceKind {
	kindsMu.Lock()
	defer kindsMu.Unlock()
	var all []DeviceKind
	for _, k := range kinds {
		all = append(all, k)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Kind() < all[j].Kind() })
	return all
}

// Devices lists the devices of all kinds; why says for each kind without one
// why there is none.
func Devices() (devices []DeviceInfo, why []error) {
	for _, k := range deviceKinds() {
		found, err := k.Devices()
		if err != nil {
			why = append(why, fmt.Errorf("%s: %w", k.Kind(), err))
		}
		devices = append(devices, found...)
	}
	return devices, why
}

// OpenDevice opens a device by name: "cuda:0" and the like, "cpu" for none, or
// "auto" for the first that can be opened, and none where there is none. ""
// stands for what [EnvDevice] names, or else for "cpu". Several names with commas
// between them, or "cuda:all" for all that there are, make one of [Several]. note says
// what "auto" picked and why. A device asked for by name that cannot be used is an error
// that wraps [ErrUnavailable] and the cause; there is no fallback.
func OpenDevice(ctx context.Context, name string) (d Device, note string, err error) {
	from := ""
	if name == "" {
		if name = os.Getenv(EnvDevice); name != "" {
			from = " from " + EnvDevice
		}
	}
	switch name {
	case "", "cpu":
		return nil, "", nil
	case AutoDevice:
		return openFirst(ctx)
	}
	if strings.ContainsAny(name, ",") || strings.HasSuffix(name, ":all") {
		d, err = openSeveral(ctx, name, from)
	} else {
		d, err = openNamed(ctx, name, from)
	}
	if err != nil {
		return nil, "", err
	}
	return d, "", nil
}

// openNamed opens the device of a name such as cuda:0; from says where that is from.
func openNamed(ctx context.Context, name, from string) (Device, error) {
	kind, number, _ := strings.Cut(name, ":")
	ordinal, err := strconv.Atoi(number)
	if err != nil || ordinal < 0 || strconv.Itoa(ordinal) != number {
		return nil, fmt.Errorf("%w: device %q%s; want cpu, auto or a name such as cuda:0", ErrUnavailable, name, from)
	}
	var known []string
	for _, k := range deviceKinds() {
		known = append(known, k.Kind())
		if k.Kind() == kind {
			d, err := k.Open(ctx, ordinal)
			if err != nil {
				return nil, fmt.Errorf("%w: device %q%s: %w", ErrUnavailable, name, from, err)
			}
			return d, nil
		}
	}
	return nil, fmt.Errorf("%w: device %q%s; this build has: %s", ErrUnavailable, name, from, strings.Join(append(known, "cpu"), ", "))
}

// openFirst opens the first device that can be opened.
func openFirst(ctx context.Context) (Device, string, error) {
	var why []string
	for _, k := range deviceKinds() {
		found, err := k.Devices()
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		for i, info := range found {
			d, err := k.Open(ctx, i)
			if err == nil {
				return d, fmt.Sprintf("auto picked %s, %s", info.Name, info.Model), nil
			}
			if ctx.Err() != nil {
				return nil, "", ctx.Err()
			}
			why = append(why, fmt.Sprintf("%s: %v", info.Name, err))
		}
	}
	if len(why) == 0 {
		why = []string{"this build has no devices"}
	}
	return nil, "auto picked cpu: " + strings.Join(why, "; "), nil
}
