package vectors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/plaid-ir/plaid/internal/registry"
)

// Format is a file format that another package reads, such as Parquet.
type Format struct {
	// Name is the name of the format in messages.
	Name string
	// Suffixes are those of its files, in lower case, with the dot.
	Suffixes []string
	// IsFolder, if not nil, reports whether a folder is of the format.
	IsFolder func(path string) bool
	// Open opens a file or a folder. If the documents have no ids, they get the ids "0", "1", …, and
	// a method Numbered() bool of the source returns true.
	Open func(ctx context.Context, path string) (Source, error)
}

// registered are the formats of RegisterFormat.
var registered registry.Formats[Format]

// RegisterFormat makes [Open] read files of a format, as [image.RegisterFormat] does for images. Call it
// when the program starts. It panics for a suffix that is registered already.
func RegisterFormat(f Format) {
	for _, suffix := range f.Suffixes {
		if formats[suffix] != "" {
			panic(fmt.Sprintf("vectors: suffix %s is read already", suffix))
		}
	}
	registered.Add(f, f.Suffixes, f.IsFolder)
}

// extraSuffixes are suffixes that only the larger program of vectors/formats reads.
var extraSuffixes = []string{".parquet", ".arrow", ".feather"}

// knownSuffixes lists the suffixes that can be read, for messages.
func knownSuffixes() string {
	known := []string{".npy", ".npz", ".safetensors", ".jsonl", ".ndjson"}
	known = append(known, registered.Suffixes()...)
	return strings.Join(known[:len(known)-1], ", ") + " or " + known[len(known)-1]
}

// openRegistered opens a collection whose vectors are in a file of a registered format.
func (in *inputs) openRegistered(ctx context.Context, f Format, files Files) (Source, error) {
	if files.Lengths != "" || files.Mask != "" {
		return nil, faultf(files.Vectors, ErrShape,
			"documents of %s have lengths of their own: lengths and mask are for arrays", f.Name)
	}
	src, err := f.Open(ctx, files.Vectors)
	if err != nil {
		return nil, err
	}
	s := &overlaySource{source: source{path: files.Vectors, files: in, closers: []io.Closer{src}}, base: src}
	if !isNumbered(src) && files.IDs == "" {
		s.ids = make([]string, src.Len())
		for i := range s.ids {
			s.ids[i] = src.ID(i)
		}
	}
	if err := s.openIDsAndPayloads(ctx, files, src.Len()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// overlaySource is a source with ids and payloads from other files.
type overlaySource struct {
	source
	base Source
}

func (s *overlaySource) Dim() int       { return s.base.Dim() }
func (s *overlaySource) Len() int       { return s.base.Len() }
func (s *overlaySource) Rows(i int) int { return s.base.Rows(i) }

func (s *overlaySource) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return s.files.guardDocs(from, func(yield func(Document, error) bool) {
		var payload []byte
		i := from
		for doc, err := range s.base.Docs(ctx, from, to) {
			if err != nil {
				if fault, ok := errors.AsType[*FileError](err); ok && fault.ID == "" && i < s.Len() {
					fault.ID = s.ID(i)
				}
				yield(Document{}, err)
				return
			}
			doc.ID = s.ID(i)
			if s.payload != nil {
				if doc.Payload, payload, err = s.payload.readPayload(payload, i); err != nil {
					yield(Document{}, inFile(err, "", i, -1, doc.ID))
					return
				}
			}
			if !yield(doc, nil) {
				return
			}
			i++
		}
	})
}
