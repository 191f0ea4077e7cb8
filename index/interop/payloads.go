package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// metadataFile is the SQLite file in which fast-plaid and next-plaid keep what belongs to documents.
const metadataFile = "metadata.db"

// ErrPayloads: what the engine keeps beside the documents cannot be read. The documents can: see
// [github.com/plaid-ir/plaid/index.ImportOptions].
var ErrPayloads = errors.New("the metadata of the documents cannot be read")

// PayloadSource is an open metadata.db. It is for one goroutine.
type PayloadSource interface {
	// Get returns what is kept beside a document, as a JSON object; nil if there is nothing. Each
	// document may be asked for once.
	Get(ctx context.Context, doc int) ([]byte, error)
	Close() error
}

// PayloadReader opens the metadata.db of an index with docs documents, and only reads it. What is
// odd about it goes to warn.
//
// Errors wrap [ErrBroken], [ErrUnsupported], or those of ctx and of the operating system.
type PayloadReader func(ctx context.Context, path string, docs int, warn func(string)) (PayloadSource, error)

var payloadReader atomic.Pointer[PayloadReader]

// RegisterPayloads lets [Index.Payloads] read SQLite files; it is for the start of a program. The
// package vectors/formats/sqlite has a reader. A second one panics.
func RegisterPayloads(read PayloadReader) {
	if !payloadReader.CompareAndSwap(nil, &read) {
		panic("interop: a reader of payloads is registered already")
	}
}

// Payloads is what the engine keeps beside documents. It is for one goroutine.
type Payloads struct {
	x      *Index
	source PayloadSource
}

// Payloads opens what fast-plaid and next-plaid keep beside the documents, in metadata.db;
// nil if there is no such file. What is odd about it becomes a warning.
//
// Errors wrap [ErrPayloads], and [ErrUnsupported] where no reader is registered.
func (x *Index) Payloads(ctx context.Context) (*Payloads, error) {
	path := filepath.Join(x.Dir, metadataFile)
	exists := false
	// SQLite keeps changes beside the file until it puts them there.
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if _, err := os.Stat(path + suffix); err != nil {
			continue
		}
		f, size, err := x.folder.openFile(metadataFile + suffix) // from now on [Index.Unchanged] looks at it
		if err != nil {
			return nil, x.payloadError(err)
		}
		f.Close()
		exists = exists || size > 0
	}
	if !exists {
		return nil, nil
	}
	read := payloadReader.Load()
	if read == nil {
		return nil, x.payloadError(fmt.Errorf("%w: %s is read by the program that has more formats: vectors/formats/cmd/plaid in plaid's repository (docs/formats.md)", ErrUnsupported, metadataFile))
	}
	source, err := (*read)(ctx, path, len(x.DocLens), func(s string) { x.addWarning("%s", s) })
	if err != nil {
		return nil, x.payloadError(err)
	}
	return &Payloads{x, source}, nil
}

// Get returns what is kept beside a document, as a JSON object; nil if there is nothing. Each
// document may be asked for once.
func (p *Payloads) Get(ctx context.Context, doc int) ([]byte, error) {
	b, err := p.source.Get(ctx, doc)
	if err != nil {
		return nil, p.x.payloadError(fmt.Errorf("document %d: %w", doc, err))
	}
	return b, nil
}

// Close closes the file.
func (p *Payloads) Close() error { return p.source.Close() }

func (x *Index) payloadError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("index folder %s: %w: %w; without %s the documents alone are taken over", x.Dir, ErrPayloads, err, metadataFile)
}
