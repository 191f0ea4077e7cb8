package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// metadataFile is the SQLite file in which fast-plaid and next-plaid store the metadata of
// documents.
const metadataFile = "metadata.db"

// ErrPayloads reports that the metadata of documents cannot be read. The documents can be imported
// without: see [github.com/plaid-ir/plaid/index.ImportOptions].
var ErrPayloads = errors.New("the metadata of the documents cannot be read")

// PayloadSource is an open metadata.db. It is for one goroutine.
type PayloadSource interface {
	// Get returns the metadata of a document as a JSON object, or nil. It may be called once for
	// each document.
	Get(ctx context.Context, doc int) ([]byte, error)
	Close() error
}

// PayloadReader opens, only for reading, the metadata.db of an index with docs documents. It passes
// oddities to warn.
//
// Errors wrap [ErrBroken], [ErrUnsupported], or those of ctx and of the operating system.
type PayloadReader func(ctx context.Context, path string, docs int, warn func(string)) (PayloadSource, error)

var payloadReader atomic.Pointer[PayloadReader]

// RegisterPayloads sets the reader of SQLite files for [Index.Payloads]; call it at the start of a
// program. The package vectors/formats/sqlite has a reader. A second call panics.
func RegisterPayloads(read PayloadReader) {
	if !payloadReader.CompareAndSwap(nil, &read) {
		panic("interop: a payload reader is registered already")
	}
}

// Payloads reads the metadata of documents. It is for one goroutine.
type Payloads struct {
	x      *Index
	source PayloadSource
}

// Payloads opens the metadata.db of fast-plaid or next-plaid. It returns nil without this
// file. Oddities become warnings.
//
// Errors wrap [ErrPayloads], and [ErrUnsupported] if no reader is registered.
func (x *Index) Payloads(ctx context.Context) (*Payloads, error) {
	path := filepath.Join(x.Dir, metadataFile)
	exists := false
	// SQLite writes changes to a second file before it copies them into the database.
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if _, err := os.Stat(path + suffix); err != nil {
			continue
		}
		f, size, err := x.folder.openFile(metadataFile + suffix) // so that [Index.Unchanged] checks it
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
		return nil, x.payloadError(fmt.Errorf("%w: only the program with more formats reads %s: "+
			"build vectors/formats/cmd/plaid in plaid's repository (docs/formats.md)", ErrUnsupported, metadataFile))
	}
	source, err := (*read)(ctx, path, len(x.DocLens), func(s string) { x.addWarning("%s", s) })
	if err != nil {
		return nil, x.payloadError(err)
	}
	return &Payloads{x, source}, nil
}

// Get returns the metadata of a document as a JSON object, or nil. It may be called once for each
// document.
func (p *Payloads) Get(ctx context.Context, doc int) ([]byte, error) {
	b, err := p.source.Get(ctx, doc)
	if err != nil {
		return nil, p.x.payloadError(fmt.Errorf("document %d: %w", doc, err))
	}
	return b, nil
}

// Close closes the file.
func (p *Payloads) Close() error { return p.source.Close() }

// payloadError wraps ErrPayloads, unless the context has ended.
func (x *Index) payloadError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("index folder %s: %w: %w; leave %s out to import the documents without metadata",
		x.Dir, ErrPayloads, err, metadataFile)
}
