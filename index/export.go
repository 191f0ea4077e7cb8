package index

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/atomicfile"
	"github.com/plaid-ir/plaid/interop"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Names of the files of an exported folder; `plaid index` takes them back.
const (
	exportVectors = "docs.npy"
	exportLengths = "doclens.npy"
	exportIDs     = "ids.txt"
	exportPayload = "payload.jsonl"
)

// Export writes the live documents as float32 arrays: decoded vectors, lengths,
// ids, and the payloads where there are any, a line of JSON each, which says
// whose it is. dir must not exist or be empty; it appears, durable, when
// everything is written. What an export to it left that was killed is removed.
func (s *Snapshot) Export(ctx context.Context, dir string, progress func(Progress)) (err error) {
	defer storage.Guard(s.Path(), &err)()
	folder, err := atomicfile.CreateFolder(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	var lengths []int32
	ids, err := s.liveIDs(ctx, &lengths)
	if err != nil {
		return err
	}
	if err := s.exportVectors(ctx, folder, lengths, progress); err != nil {
		return err
	}
	if err := folder.Write(exportIDs, lines(ids)); err != nil {
		return err
	}
	if err := s.exportPayload(ctx, folder); err != nil {
		return err
	}
	return folder.Commit()
}

func (s *Snapshot) exportVectors(ctx context.Context, folder *atomicfile.Folder, lengths []int32, progress func(Progress)) error {
	total := 0
	wide := make([]int64, len(lengths))
	for i, n := range lengths {
		total += int(n)
		wide[i] = int64(n)
	}
	err := folder.Write(exportLengths, func(w io.Writer) error {
		return vectors.WriteNPYInts(w, "<i4", []int{len(wide)}, wide)
	})
	if err != nil {
		return err
	}
	return folder.Write(exportVectors, func(f io.Writer) error {
		w, err := vectors.NewNPYWriter(f, "<f4", total, s.Dim())
		if err != nil {
			return err
		}
		err = s.eachLive(ctx, func(ordinal uint32) error {
			v, err := s.Vectors(ordinal)
			if err != nil {
				return err
			}
			return w.Float32s(v)
		}, progress)
		if err != nil {
			return err
		}
		return w.Close()
	})
}

// eachLive visits the live documents in order.
func (s *Snapshot) eachLive(ctx context.Context, visit func(ordinal uint32) error, progress func(Progress)) error {
	docs := s.State().Docs
	for ordinal := range docs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !s.Live(ordinal) {
			continue
		}
		if err := visit(ordinal); err != nil {
			return err
		}
		if progress != nil && ordinal%1024 == 0 {
			progress(Progress{"export", int64(ordinal), int64(docs), "documents"})
		}
	}
	return nil
}

// lines writes texts, one a line.
func lines(texts []string) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, t := range texts {
			if _, err := io.WriteString(w, t+"\n"); err != nil {
				return err
			}
		}
		return nil
	}
}

// exportPayload writes the payloads, a line each; there is no file if there is
// no payload.
func (s *Snapshot) exportPayload(ctx context.Context, folder *atomicfile.Folder) error {
	n := 0
	err := folder.Write(exportPayload, func(w io.Writer) error {
		return s.eachLive(ctx, func(ordinal uint32) error {
			p, err := s.Payload(ordinal)
			if err != nil || p == nil {
				return err
			}
			n++
			if p, err = payloadLine(s.ID(ordinal), p); err != nil {
				return fmt.Errorf("document %d, %q: %w", ordinal, s.ID(ordinal), err)
			}
			if _, err := w.Write(p); err != nil {
				return err
			}
			_, err = w.Write([]byte{'\n'})
			return err
		}, nil)
	})
	if err != nil || n > 0 {
		return err
	}
	return os.Remove(filepath.Join(folder.Path(), exportPayload))
}

// payloadLine is a payload as a line of JSON that finds its document again. Bytes
// in JSON that are no UTF-8, which older indexes may have, become U+FFFD. An object that names the document, as one from a file of payloads does, stays
// as it is; another gets a field _id; what is no object, or has the _id of
// something else, becomes the field payload of one.
func payloadLine(id string, p []byte) ([]byte, error) {
	if json.Valid(p) {
		p = bytes.ToValidUTF8(p, []byte("\ufffd"))
	}
	var line bytes.Buffer
	valid := json.Compact(&line, p) == nil
	var fields map[string]json.RawMessage
	object := valid && json.Unmarshal(p, &fields) == nil && fields != nil
	own, named := fields["_id"]
	if !named {
		own = fields["id"]
	}
	var name string
	if object && (string(own) == id || json.Unmarshal(own, &name) == nil && name == id) {
		if bytes.ContainsAny(p, "\r\n") {
			p = line.Bytes()
		}
		return p, nil
	}
	head, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	head = append([]byte(`{"_id":`), head...)
	switch {
	case object && !named && len(fields) > 0:
		return append(append(head, ','), line.Bytes()[1:]...), nil
	case !valid && !utf8.Valid(p):
		return nil, fmt.Errorf("%w: payload is neither JSON nor UTF-8", vectors.ErrFormat)
	case !valid:
		line.Reset()
		text, err := json.Marshal(string(p))
		if err != nil {
			return nil, err
		}
		line.Write(text)
	}
	return append(append(append(head, `,"payload":`...), line.Bytes()...), '}'), nil
}

// ExportEngine writes the live documents as an index folder that fast-plaid
// and next-plaid load. Document numbers there follow insertion order; ids are
// written beside them, one a line, as ids.txt.
//
// An index with scales of residuals, which is the default, has no such form: the
// error wraps [interop.ErrUnsupported].
func (s *Snapshot) ExportEngine(ctx context.Context, dir string, progress func(Progress)) (err error) {
	defer storage.Guard(s.Path(), &err)()
	c := s.Quantizer()
	k := c.Kernel()
	if k.DimScale != nil || k.CentroidScale != nil {
		return fmt.Errorf("%w: the format has no scales of residuals; build the index with --scales none (BuildOptions.NoDimScales, NoCentroidScales) to export it", interop.ErrUnsupported)
	}
	h := interop.Header{Dim: c.Dim, Nbits: c.Nbits, Centroids: c.Centroids(), Weights: k.Codebook.Weights(), Cutoffs: c.Cutoffs}
	if h.Cutoffs == nil {
		for i := 1; i < len(h.Weights); i++ {
			h.Cutoffs = append(h.Cutoffs, (h.Weights[i-1]+h.Weights[i])/2)
		}
	}
	ids, err := s.liveIDs(ctx, &h.DocLens)
	if err != nil {
		return err
	}
	w, err := interop.Create(dir, h)
	if err != nil {
		return err
	}
	defer w.Close()
	rb := c.RowBytes()
	var codes []uint32
	for i := range s.Chunks() {
		ch, err := s.Chunk(i, storage.All)
		if err != nil {
			return err
		}
		first, _ := s.ChunkDocs(i)
		for d := range ch.Docs() {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !s.Live(first + uint32(d)) {
				continue
			}
			lo, hi := int(ch.Offsets[d]), int(ch.Offsets[d+1])
			codes = codes[:0]
			for t := lo; t < hi; t++ {
				codes = append(codes, ch.Code(t))
			}
			if err := w.WriteBlock(codes, ch.Residuals[lo*rb:hi*rb]); err != nil {
				return err
			}
		}
		if progress != nil {
			progress(Progress{"export", int64(i + 1), int64(s.Chunks()), "chunks"})
		}
	}
	if err := w.WriteFile(exportIDs, lines(ids)); err != nil {
		return err
	}
	return w.Commit(ctx)
}

func (s *Snapshot) liveIDs(ctx context.Context, lengths *[]int32) ([]string, error) {
	var ids []string
	for i := range s.Chunks() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		first, offsets := s.ChunkDocs(i)
		for d := range len(offsets) - 1 {
			if !s.Live(first + uint32(d)) {
				continue
			}
			n := offsets[d+1] - offsets[d]
			if n > math.MaxInt32 {
				return nil, fmt.Errorf("document %d: %d tokens", first+uint32(d), n)
			}
			ids = append(ids, s.ID(first+uint32(d)))
			*lengths = append(*lengths, int32(n))
		}
	}
	return ids, nil
}
