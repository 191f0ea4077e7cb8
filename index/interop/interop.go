// Package interop reads and writes the index folders of other late-interaction
// engines: ColBERT's .pt files and the .npy families of fast-plaid and
// next-plaid, on their own or as PyLate keeps them. It executes nothing that it
// reads and never writes to a source.
package interop

import (
	"errors"
	"fmt"
)

// Errors; test with errors.Is.
var (
	// ErrNotIndex: the folder is not an index of a known engine.
	ErrNotIndex = errors.New("not an index folder of a known engine")
	// ErrBroken: the folder is one, but its files contradict each other, are cut short or malformed.
	ErrBroken = errors.New("broken index folder")
	// ErrUnsupported: a residual codec or option that has no counterpart here.
	ErrUnsupported = errors.New("unsupported index")
	// ErrChanged: files changed while they were read.
	ErrChanged = errors.New("index folder changed while it was read")
	// ErrClosed: a Writer is used after Close.
	ErrClosed = errors.New("already closed")
)

// The engines that Index.Engine names.
const (
	EngineColBERT   = "colbert"
	EngineFastPlaid = "fast-plaid"
	EngineNextPlaid = "next-plaid"
	EngineNPY       = "npy"
)

// Index is an index folder that [Open] has looked at. It holds the centroids, the codebook
// and the document lengths, and no open files; codes and residuals stay on disk until
// [Index.Blocks] streams them. Its methods may be called from several goroutines.
type Index struct {
	Engine string // "colbert", "fast-plaid", "next-plaid" or "npy"
	Dir    string

	Dim, Nbits, K int
	// Centroids is K × Dim, as stored (float16 values are exact in float32).
	Centroids []float32
	// CentroidsF16 says that the source holds them as float16.
	CentroidsF16 bool
	// Cutoffs has 2ⁿ−1, Weights 2ⁿ values.
	Cutoffs, Weights []float32
	// DocLens is the number of tokens of each document.
	DocLens []int32
	// Tokens is their sum.
	Tokens int64
	// Warnings are oddities that do not stop an import.
	Warnings []string

	openedDir string // the folder that was opened, around Dir
	folder    *folder
	parts     arrayFiles
}

// RowBytes is the number of residual bytes a token.
func (x *Index) RowBytes() int { return x.Dim * x.Nbits / 8 }

// Unchanged stats every file that was read since [Open] once more and returns
// an error of [ErrChanged] that names the first one whose size, modification
// time or identity is another. No lock of the other engines protects a reader,
// so call it after the last block, before trusting what was read.
func (x *Index) Unchanged() error { return x.folder.unchanged() }

func (x *Index) addWarning(format string, args ...any) {
	x.Warnings = append(x.Warnings, fmt.Sprintf(format, args...))
}

// Block is a run of tokens, in document order. It does not respect document
// boundaries. Its slices are valid until the next block is asked for.
type Block struct {
	Codes []uint32
	// Residuals has Dim·Nbits/8 bytes a token in plaid's order: field j at
	// bit j·Nbits, least significant first, fields not mirrored.
	Residuals []byte
}
