// Package interop reads and writes the index folders of other late-interaction engines: ColBERT's
// .pt files and the .npy files of fast-plaid and next-plaid, alone or within the folders of PyLate.
// It executes nothing that it reads and never writes to a source.
package interop

import (
	"errors"
	"fmt"
)

// Errors of this package; test with errors.Is.
var (
	// ErrNotIndex reports that the folder is not an index of a known engine.
	ErrNotIndex = errors.New("not an index folder of a known engine")
	// ErrBroken reports an index whose files contradict each other, are truncated or malformed.
	ErrBroken = errors.New("broken index folder")
	// ErrUnsupported reports a residual codec or option without a counterpart in plaid.
	ErrUnsupported = errors.New("unsupported index")
	// ErrChanged reports files that changed while they were read.
	ErrChanged = errors.New("index folder changed while it was read")
	// ErrClosed reports the use of a Writer after Close.
	ErrClosed = errors.New("already closed")
)

// The values of Index.Engine.
const (
	EngineColBERT   = "colbert"
	EngineFastPlaid = "fast-plaid"
	EngineNextPlaid = "next-plaid"
	EngineNPY       = "npy"
)

// Index is an index folder that was opened by [Open]. It holds the centroids, the codebook and the
// document lengths, and no open files; codes and residuals stay on disk until [Index.Blocks]
// streams them. Its methods are safe for concurrent use.
type Index struct {
	Engine string // "colbert", "fast-plaid", "next-plaid" or "npy"
	Dir    string

	Dim, Nbits, K int
	// Centroids is K × Dim, as stored (float16 values are exact in float32).
	Centroids []float32
	// CentroidsF16 means that the source stores them as float16.
	CentroidsF16 bool
	// Cutoffs has 2ⁿ−1 values, Weights 2ⁿ.
	Cutoffs, Weights []float32
	// DocLens is the number of tokens of each document.
	DocLens []int32
	// Tokens is their sum.
	Tokens int64
	// Warnings describe oddities that do not stop an import.
	Warnings []string

	openedDir string // the folder that was opened; Dir may be within it
	folder    *folder
	files     arrayFiles
}

// RowBytes returns the number of residual bytes of a token.
func (x *Index) RowBytes() int { return x.Dim * x.Nbits / 8 }

// Unchanged checks every file that was read since [Open], and returns an error of [ErrChanged] that
// names the first one with another size, modification time or identity. The other engines have no
// lock that protects readers, so call it after the last block, before trusting the data.
func (x *Index) Unchanged() error { return x.folder.unchanged() }

// addWarning adds a warning for people.
func (x *Index) addWarning(format string, args ...any) {
	x.Warnings = append(x.Warnings, fmt.Sprintf(format, args...))
}

// Block is a run of tokens, in document order, that may begin and end within a document. Its slices
// are valid until the next block is yielded.
type Block struct {
	Codes []uint32
	// Residuals has Dim·Nbits/8 bytes a token in plaid's order: field j at bit j·Nbits, least
	// significant bit first, fields not mirrored.
	Residuals []byte
}
