package vectors

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/internal/registry"
)

// Format is a kind of file that another package reads, such as Parquet.
type Format struct {
	// Name is that of the format, for messages.
	Name string
	// Suffixes of its files, in small letters, with the dot.
	Suffixes []string
	// Folder, where set, tells whether a folder is of the format.
	Folder func(path string) bool
	// Open opens a file or a folder. Ids "0", "1", … of documents that have none of
	// their own are told by a method Numbered() bool of the source.
	Open func(ctx context.Context, path string) (Source, error)
}

var registered registry.Formats[Format]

// RegisterFormat lets [Open] read files of a format, as [image.RegisterFormat] does for
// pictures; it is for the start of a program. Suffixes that are taken already panic.
func RegisterFormat(f Format) {
	for _, suffix := range f.Suffixes {
		if formats[suffix] != "" {
			panic(fmt.Sprintf("vectors: suffix %s is read already", suffix))
		}
	}
	registered.Add(f, f.Suffixes, f.Folder)
}

// elsewhere are suffixes that a larger program of this repository reads.
var elsewhere = []string{".parquet", ".arrow", ".feather"}

// suffixes are those that can be read.
func suffixes() string {
	all := []string{".npy", ".npz", ".safetensors", ".jsonl", ".ndjson"}
	all = append(all, registered.Suffixes()...)
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// openRegistered opens a collection whose vectors are of a registered format.
func (in *inputs) openRegistered(ctx context.Context, f Format, files Files) (_ Source, err error) {
	if files.Lengths != "" || files.Mask != "" {
		return nil, faultf(files.Vectors, ErrShape, "documents of %s have lengths of their own: lengths and mask are for arrays", f.Name)
	}
	src, err := f.Open(ctx, files.Vectors)
	if err != nil {
		return nil, err
	}
	s := &overlaid{Source: src, in: in}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if files.IDs != "" {
		if s.ids, err = in.readIDs(ctx, files.IDs, wantedIDs{n: src.Len(), file: files.Vectors}); err != nil {
			return nil, err
		}
		s.ids = notNil(s.ids)
	}
	if files.Payload != "" {
		ids := s.ids
		if ids == nil && !s.numbered() {
			ids = make([]string, src.Len())
			for i := range ids {
				ids[i] = src.ID(i)
			}
		}
		if s.payload, err = in.openPayloads(ctx, files.Payload, src.Len(), ids); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// overlaid is a source with the ids and the payload of other files.
type overlaid struct {
	Source
	in      *inputs
	ids     []string  // nil: those of the source
	payload *payloads // nil: that of the source
}

func (s *overlaid) ID(i int) string {
	if s.ids == nil {
		return s.Source.ID(i)
	}
	return s.ids[i]
}

func (s *overlaid) numbered() bool {
	if s.ids != nil {
		return false
	}
	n, ok := s.Source.(interface{ Numbered() bool })
	return ok && n.Numbered()
}

func (s *overlaid) Close() error {
	err := s.Source.Close()
	if s.payload != nil {
		err = errors.Join(err, s.payload.Close())
	}
	return err
}

func (s *overlaid) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return s.in.guard(from, func(yield func(Document, error) bool) {
		var payload []byte
		i := from
		for doc, err := range s.Source.Docs(ctx, from, to) {
			if err == nil {
				doc.ID = s.ID(i)
				if s.payload != nil {
					doc.Payload, payload, err = s.payload.get(payload, i)
				}
			}
			if err != nil {
				yield(Document{}, inFile(err, "", i, -1, s.idOrRow(i)))
				return
			}
			if !yield(doc, nil) {
				return
			}
			i++
		}
	})
}

func (s *overlaid) idOrRow(i int) string {
	if i < 0 || i >= s.Len() {
		return strconv.Itoa(i)
	}
	return s.ID(i)
}
