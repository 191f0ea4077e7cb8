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

// AutoDevice is the name that stands for the first device that can be opened, or else for
// the processor.
const AutoDevice = "auto"

// ErrDeviceClosed is returned by calls on a device, or on an index on it, after Close.
var ErrDeviceClosed = errors.New("kernels: device closed")

// ErrDeviceMemory is returned where data does not fit into a device's memory, or into
// the part of it that may be used.
var ErrDeviceMemory = errors.New("out of device memory")

// PanicError reports a panic in the code that serves a device's requests: a bug of
// this program, not a fault of the device or the index. The device then answers every
// request with this error until it is closed and opened again.
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
	Name            string `json:"name"`            // for [OpenDevice], such as "cuda:0"
	Model           string `json:"model"`           // the vendor's name of the model
	Capability      string `json:"capability"`      // for CUDA the compute capability, such as "9.0"
	Memory          uint64 `json:"memory"`          // bytes
	Multiprocessors int    `json:"multiprocessors"` // their number
	PCI             string `json:"pci"`             // the address on the bus
	Driver          string `json:"driver"`          // the newest version of CUDA that the driver supports
	// Unusable is the reason why the device cannot be used. "" means that it can.
	Unusable string `json:"unusable,omitempty"`
}

// DeviceKind finds and opens the devices of one kind. A package registers its kind
// when it is imported.
type DeviceKind interface {
	// Kind returns the part of device names before the colon, such as "cuda".
	Kind() string
	// Devices lists the devices of this machine. Without devices, the error has the reason.
	Devices() ([]DeviceInfo, error)
	// Open opens the device with this number.
	Open(ctx context.Context, ordinal int) (Device, error)
}

// Device is an opened device. It is safe for concurrent use.
type Device interface {
	Info() DeviceInfo
	// Attach uploads an index. It stays on the device until the attachment is closed.
	Attach(ctx context.Context, c Corpus, o AttachOptions) (Attachment, error)
	// Builder returns a backend that finds nearest centroids on the device, with the
	// bits of the processor's backends. It leaves everything else to cpu, including
	// vectors with a component above 65504, the largest number of the device's float16.
	// It may be an [EncoderPreparer].
	Builder(cpu Backend) Builder
	// Close frees everything on the device, attachments included. It may be
	// called more than once.
	Close() error
}

// Builder is a backend whose Nearest runs on a device. If the device fails, the call
// returns an error, and so does every later call if the device is lost: the processor
// never silently does the work of a device.
type Builder interface {
	Backend
	Preparer
}

// Preparer is a backend that is faster if it sees the centroids once, before many calls
// of Nearest.
type Preparer interface {
	// Prepare returns a backend for calls of Nearest with these centroids, which
	// must not change before release is called. On error there is nothing to
	// release.
	Prepare(ctx context.Context, centroids []float32, dim int) (b Backend, release func(), err error)
}

// RowUploader is a [Builder] that keeps the rows of k-means on the device, so that they are
// copied there once and not in every round.
type RowUploader interface {
	// UploadRows copies the listed rows of x, a matrix of dim columns, to the device, in the
	// order of the list. Both slices must not change before the rows are released. The error
	// wraps [ErrDeviceMemory] if the rows do not fit; Nearest works without them.
	UploadRows(ctx context.Context, x []float32, dim int, rows []uint32) (DeviceRows, error)
}

// DeviceRows are n rows on a device. Only one goroutine at a time may use them.
type DeviceRows interface {
	// Nearest finds the nearest centroids of all rows, as [Backend] does: codes and scores
	// are [n]. It calls tick with the number of rows done since the last call.
	Nearest(ctx context.Context, codes []uint32, scores, centroids []float32, tick func(rows int)) error
	// UpdateCentroids replaces each centroid of the last call of Nearest, [k, dim], by the sum
	// of its rows, scaled to unit length. Centroid c has the rows order[starts[c]:starts[c+1]],
	// numbered as they were uploaded. Rows are added in float64, in their order. A centroid
	// without rows, or whose sum is at most 10⁻¹² times their number long, does not change.
	UpdateCentroids(ctx context.Context, centroids []float32, order []uint32, starts []int) error
	// Release frees the rows.
	Release()
}

// TokenEncoder encodes tokens on a device: nearest centroids, residuals and factors, with
// the bits of package codec. It is safe for concurrent use.
type TokenEncoder interface {
	// EncodeTokens encodes the rows of x. A row with a component that is too large for
	// the device gets a code of K or more; its other results are undefined. Errors are
	// those of a [Builder].
	EncodeTokens(ctx context.Context, dst EncodedTokens, x []float32) error
}

// EncodedTokens holds the arrays that n encoded tokens are written to.
type EncodedTokens struct {
	Codes     []uint32 // [n]
	Residuals []byte   // [n, RowBytes]
	Factors   []int16  // [n]; a token of zeros has 0
	// Errors has the squared distance of each token from its decoded vector, [n]. It is
	// negative where the factor was clamped.
	Errors []float64
}

// EncoderPreparer is a [Builder] that encodes tokens as well.
type EncoderPreparer interface {
	// PrepareEncoder returns an encoder for a codec with a uniform codebook. centroids are
	// those of the codec, as float32. With unit, rows are scaled to unit length first. On
	// error there is nothing to release.
	PrepareEncoder(
		ctx context.Context, c *Codec, centroids []float32, unit bool,
	) (e TokenEncoder, release func(), err error)
}

// Prepare calls the Prepare of a backend that has one, and otherwise returns
// the backend itself.
func Prepare(ctx context.Context, b Backend, centroids []float32, dim int) (Backend, func(), error) {
	if p, ok := b.(Preparer); ok {
		return p.Prepare(ctx, centroids, dim)
	}
	return b, func() {}, nil
}

// Corpus is a snapshot of an index, as a device reads it.
//
// Snapshots with the same lineage share documents by ordinal:
//
//  1. A document never changes, and new documents get the next ordinals.
//  2. A deleted document keeps its ordinal. A later snapshot may drop its tokens, so
//     that its length becomes 0.
//  3. Chunks differ between snapshots, because additions merge small chunks.
//
// So a device may reuse the documents of one snapshot for the next, but must not
// identify them by chunk numbers.
type Corpus interface {
	Codec() *Codec
	// Lineage changes when documents are renumbered or recoded, or come from
	// another file. Of two snapshots of a lineage either may be the older.
	Lineage() uint64
	Chunks() int
	// ChunkDocs returns the first ordinal and the token offsets of chunk i.
	// Chunks follow one another without gaps.
	ChunkDocs(i int) (first uint32, offsets []uint32)
	// Load returns the arrays of chunk i, validated.
	Load(i int) (*Chunk, error)
	// LiveSet returns one bit an ordinal, set for documents that may be returned:
	// those that are neither deleted nor empty. A snapshot always returns the same
	// slice, which does not change: its address identifies the snapshot.
	LiveSet() (set []uint64, count int)
	// Guard calls read, which reads the arrays of chunks. These may be mapped pages of
	// a file: a memory fault in read becomes an error.
	Guard(read func() error) error
}

// AttachOptions configure [Device.Attach].
type AttachOptions struct {
	// Memory limits the bytes of the device's memory that are used. 0 means the free
	// memory less a reserve. An index that does not fit is streamed in every search.
	Memory int64
	// Bound selects the bound of the scan's errors. With [Worst] a device that has FP8
	// products scans with bytes instead, because all roundings of bytes have a bound;
	// the scan is then up to a fifth slower.
	Bound Bound
	// Progress is called with the number of tokens uploaded so far and of all tokens.
	// It may be nil.
	Progress func(done, total int64)
}

// Attachment is an index on a device. It is safe for concurrent use.
type Attachment interface {
	// Search answers queries on a snapshot of the attached index. Queries of one call
	// and of several goroutines may share kernel launches; results do not depend on
	// that. It does not use the memory of the queries after it has returned.
	Search(ctx context.Context, c Corpus, qs []DeviceQuery) ([]DeviceAnswer, error)
	// Plan returns the use of the device's memory.
	Plan() MemoryPlan
	Close() error
}

// DeviceQuery is a search for the K best documents. Ordinals are those of the corpus.
type DeviceQuery struct {
	Vectors []float32 // [Lq, dim]
	Weights []float32 // [Lq]. nil means that all are 1
	K       int
	// Docs lists the documents to score, ascending. Allowed has a bit for each document
	// that may be returned. nil means no restriction; without both, all live documents
	// are searched.
	Docs    []uint32
	Allowed []uint64
	// Probes restricts the search to documents with a token in one of the Probes best
	// centroids of a query token. If these are fewer than K documents, all are searched.
	// 0 means no restriction.
	Probes int
	// MaxCandidates limits how many of these documents are scored: those that gain most by
	// probed centroids. 0 means no limit.
	MaxCandidates int
}

// DeviceAnswer is the K best documents, score descending, then ordinal
// ascending.
type DeviceAnswer struct {
	Docs   []uint32    // ordinals, best first
	Scores []float32   // of Docs
	Stats  DeviceStats // of the search
}

// DeviceStats counts the work of one search, or of several that [DeviceStats.Add] summed.
type DeviceStats struct {
	Device      string `json:"device"`           // its name
	Searches    int64  `json:"searches"`         // queries that were answered
	Launches    int64  `json:"launches"`         // batches that a search was part of
	Batched     int64  `json:"batched_searches"` // searches that shared launches with others
	ScanTokens  int64  `json:"scan_tokens"`      // tokens that got a score in the first pass
	Candidates  int64  `json:"candidates"`       // of probed searches
	ScanDocs    int64  `json:"scan_docs"`        // candidates that got a score
	Widened     int64  `json:"widened"`          // probed searches with too few candidates, repeated over all documents
	RefinedDocs int64  `json:"refined_docs"`     // documents scored again in float precision
	Retried     int64  `json:"retried"`          // searches repeated with a wider margin
	InDoubt     int64  `json:"in_doubt"`         // searches whose last ranks the error of the scan leaves undecided
	// BoundShare is the largest error that a scan showed, as a share of its bound.
	BoundShare float64 `json:"bound_share"`
	// Streamed counts the bytes that crossed the bus because the index does not
	// fit into the device's memory, or 0 where it is resident.
	Streamed int64       `json:"streamed_bytes"`
	Times    DeviceTimes `json:"times"` // of the stages
}

// DeviceTimes are a search's shares of the times of its batch: the times of all searches
// of a batch add up to those of the batch. Wait is time in the queue; Transfer is time
// for copies, launches and the host; the others but Total are times on the device. In
// searches with probes that shared launches, Scan contains most of TopK and Fine. Total
// is a search's share of the elapsed time of its call.
type DeviceTimes struct {
	Wait      time.Duration `json:"wait_ns"`      // for the device
	Transfer  time.Duration `json:"transfer_ns"`  // of queries and results, and launches
	Centroids time.Duration `json:"centroids_ns"` // scores of all centroids
	Probe     time.Duration `json:"probe_ns"`     // finding the best centroids and their documents
	Scan      time.Duration `json:"scan_ns"`      // scores of tokens
	TopK      time.Duration `json:"topk_ns"`      // the best of all documents
	Fine      time.Duration `json:"fine_ns"`      // scores in float precision
	Total     time.Duration `json:"total_ns"`     // elapsed time
}

// Add adds the counts and times of another search.
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

// MemoryPlan is an attachment's use of a device's memory, in bytes, except for the numbers of
// tokens, slots and pieces.
type MemoryPlan struct {
	Tokens    int64 `json:"tokens"`
	Slots     int64 `json:"token_slots"` // tokens after documents are padded to whole tiles
	Codec     int64 `json:"codec"`
	Words     int64 `json:"words"` // code and factor of each token
	Residuals int64 `json:"residuals"`
	Tables    int64 `json:"tables"` // of documents and tiles
	Staging   int64 `json:"staging"`
	Query     int64 `json:"query_workspace"` // for one group of 32 query tokens
	Limit     int64 `json:"limit"`
	Resident  bool  `json:"resident"` // false means that searches stream the index
	Pieces    int   `json:"pieces"`   // that the index is streamed in; 1 where it is resident
}

// Index returns the bytes of the index itself.
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

// deviceKinds returns the registered kinds, sorted by name.
func deviceKinds() []DeviceKind {
	kindsMu.Lock()
	defer kindsMu.Unlock()
	var sorted []DeviceKind
	for _, k := range kinds {
		sorted = append(sorted, k)
	}
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Kind() < sorted[j].Kind() })
	return sorted
}

// Devices lists the devices of all kinds. why has an error for each kind without
// devices, with the reason.
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

// OpenDevice opens a device by name, such as "cuda:0". "cpu" means the processor, for
// which d is nil. "auto" means the first device that can be opened, or else the
// processor; note then says which it is and why. "" means the name in [EnvDevice], or
// else "cpu". Several names, separated by commas, or "cuda:all" for all devices of a
// kind, are opened as one by [CombineDevices]. If a named device cannot be used, the error
// wraps [ErrUnavailable] and the cause: nothing replaces the device.
func OpenDevice(ctx context.Context, name string) (d Device, note string, err error) {
	source := "" // of the name, for errors
	if name == "" {
		if name = os.Getenv(EnvDevice); name != "" {
			source = " from " + EnvDevice
		}
	}
	switch name {
	case "", "cpu":
		return nil, "", nil
	case AutoDevice:
		return openFirst(ctx)
	}
	if strings.ContainsAny(name, ",") || strings.HasSuffix(name, ":all") {
		d, err = openSeveral(ctx, name, source)
	} else {
		d, err = openNamed(ctx, name, source)
	}
	if err != nil {
		return nil, "", err
	}
	return d, "", nil
}

// openNamed opens the device of a name such as cuda:0. Errors quote the name followed by
// its source, which is empty or " from " and a variable.
func openNamed(ctx context.Context, name, source string) (Device, error) {
	kind, number, _ := strings.Cut(name, ":")
	ordinal, err := strconv.Atoi(number)
	if err != nil || ordinal < 0 || strconv.Itoa(ordinal) != number {
		return nil, fmt.Errorf("%w: device %q%s; want cpu, auto or a name such as cuda:0",
			ErrUnavailable, name, source)
	}
	var known []string
	for _, k := range deviceKinds() {
		known = append(known, k.Kind())
		if k.Kind() == kind {
			d, err := k.Open(ctx, ordinal)
			if err != nil {
				return nil, fmt.Errorf("%w: device %q%s: %w", ErrUnavailable, name, source, err)
			}
			return d, nil
		}
	}
	return nil, fmt.Errorf("%w: device %q%s; this build has: %s",
		ErrUnavailable, name, source, strings.Join(append(known, "cpu"), ", "))
}

// openFirst opens the first device that can be opened, and says in a note which it is. If
// none can be opened, the device is nil and the note has the reasons.
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
