package vectors

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
)

// SeqOptions of [FromSeq]. The zero value, or nil, is a good choice.
type SeqOptions struct {
	// Memory is how many bytes of documents to hold in memory, ids and payloads
	// included; 0: 64 MiB. A stream that has more goes to a file. What stays in memory
	// then is that of a [Spool], the ids and about 20 bytes a document.
	Memory int64
	// Spool is the file of a stream that has more. With a Path all goes there at once.
	Spool SpoolOptions
}

const (
	defaultSeqMemory = 64 << 20
	// documentBytes is what a document takes beside its content.
	documentBytes = 96
)

// FromSeq is the documents of a stream, such as the rows of a database or what an
// encoder gives: it reads the stream once, to its end, and is read as often as a build
// needs. Documents are copied. A small stream stays in memory, a large one goes to a
// file, which is gone when the source is closed, unless SpoolOptions.Path names it.
//
// Every document has an id, or none has, and then ids are row numbers. The first error
// of the stream, and one of ctx, ends it. Errors are those of [NewSpool], [Spool.Add]
// and [FromDocuments].
func FromSeq(ctx context.Context, dim int, docs iter.Seq2[Document, error], o *SeqOptions) (Source, error) {
	s := &seq{dim: dim}
	if o != nil {
		s.o = *o
	}
	if s.o.Memory <= 0 {
		s.o.Memory = defaultSeqMemory
	}
	err := s.read(ctx, docs)
	switch {
	case err == nil && s.spool != nil:
		return s.spool, nil
	case err == nil:
		return FromDocuments(dim, s.held)
	case s.spool != nil:
		err = errors.Join(err, s.spool.Close())
	}
	return nil, err
}

// seq is a stream that is being read.
type seq struct {
	dim   int
	o     SeqOptions
	held  []Document
	bytes int64
	spool *Spool // nil: all is held
}

func (s *seq) read(ctx context.Context, docs iter.Seq2[Document, error]) error {
	if s.o.Spool.Path != "" {
		if err := s.spill(); err != nil {
			return err
		}
	}
	for doc, err := range docs {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if err := s.add(doc); err != nil {
			return err
		}
	}
	if s.spool != nil {
		return s.spool.Flush()
	}
	return ctx.Err()
}

func (s *seq) add(doc Document) error {
	s.bytes += documentBytes + int64(len(doc.ID)+len(doc.Payload)+4*len(doc.Tokens))
	if s.spool == nil && s.bytes > s.o.Memory {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if s.spool != nil {
		return s.spool.Add(doc)
	}
	if err := checkFinite(doc.Tokens, max(s.dim, 1)); err != nil {
		return inFile(err, "", len(s.held), -1, doc.ID)
	}
	doc.Tokens, doc.Payload = slices.Clone(doc.Tokens), bytes.Clone(doc.Payload)
	s.held = append(s.held, doc)
	return nil
}

// spill moves what is held to a file.
func (s *seq) spill() (err error) {
	if s.spool, err = NewSpool(s.dim, &s.o.Spool); err != nil {
		return err
	}
	for _, doc := range s.held {
		if err := s.spool.Add(doc); err != nil {
			return err
		}
	}
	s.held = nil
	return nil
}
