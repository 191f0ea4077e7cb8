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

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Names of the files of an exported folder, which `plaid index` reads.
const (
	vectorsFile  = "docs.npy"
	lengthsFile  = "doclens.npy"
	idsFile      = "ids.txt"
	metadataFile = "metadata.jsonl"
)

// ExportOptions configures Export and ExportEngine. The zero value, or nil, exports all live
// documents.
type ExportOptions struct {
	// Where, if not nil, limits the export to the documents that match it. See [Snapshot.Select].
	Where *condition.Condition
	// Progress, if not nil, is called with the progress of the export.
	Progress func(Progress)
}

// selectDocuments returns the ordinals to export.
func (o *ExportOptions) selectDocuments(ctx context.Context, s *Snapshot) (*roaring.Bitmap, error) {
	if o.Where == nil {
		return liveDocs(s.fileSnapshot), nil
	}
	return s.Select(ctx, o.Where)
}

// ExportReport has the counts of an export.
type ExportReport struct {
	Docs     int   // documents
	Passages int   // passages in which some of them are stored; each is a row of the export
	Tokens   int64 // tokens of these documents
}

// Export writes documents as float32 arrays: decoded vectors, lengths, ids and, if any document has
// a payload, the payloads as lines of JSON with their ids. dir must not exist, or be empty; it
// appears, durable, when everything is written. Leftovers of a killed export to it are removed.
func (s *Snapshot) Export(ctx context.Context, dir string, opts *ExportOptions) (r *ExportReport, err error) {
	o := valueOrZero(opts)
	defer storage.Guard(s.Path(), &err)()
	docs, err := o.selectDocuments(ctx, s)
	if err != nil {
		return nil, err
	}
	folder, err := files.CreateAtomicFolder(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	ids, lengths, err := s.idsAndLengths(ctx, docs)
	if err != nil {
		return nil, err
	}
	if err := s.exportVectors(ctx, folder, docs, lengths, o.Progress); err != nil {
		return nil, err
	}
	if err := folder.Write(idsFile, writeLines(ids)); err != nil {
		return nil, err
	}
	if err := s.exportMetadata(ctx, folder, docs); err != nil {
		return nil, err
	}
	return s.newExportReport(docs, lengths), folder.Commit()
}

// newExportReport counts the documents, passages and tokens of an export.
func (s *Snapshot) newExportReport(docs *roaring.Bitmap, lengths []int32) *ExportReport {
	counts := s.countDocuments(docs)
	r := &ExportReport{Docs: counts.Documents, Passages: counts.Passages}
	for _, n := range lengths {
		r.Tokens += int64(n)
	}
	return r
}

// exportVectors writes the lengths and the decoded vectors.
func (s *Snapshot) exportVectors(
	ctx context.Context, folder *files.AtomicFolder, docs *roaring.Bitmap, lengths []int32, progress func(Progress),
) error {
	total := 0
	lengths64 := make([]int64, len(lengths))
	for i, n := range lengths {
		total += int(n)
		lengths64[i] = int64(n)
	}
	err := folder.Write(lengthsFile, func(w io.Writer) error {
		return vectors.WriteNPYInts(w, "<i4", []int{len(lengths64)}, lengths64)
	})
	if err != nil {
		return err
	}
	return folder.Write(vectorsFile, func(f io.Writer) error {
		w, err := vectors.NewNPYWriter(f, "<f4", total, s.Dim())
		if err != nil {
			return err
		}
		err = visitDocuments(ctx, docs, func(ordinal uint32) error {
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

// visitDocuments calls visit with the ordinals in order.
func visitDocuments(
	ctx context.Context, docs *roaring.Bitmap, visit func(ordinal uint32) error, progress func(Progress),
) error {
	n, total := int64(0), int64(docs.GetCardinality())
	for it := docs.Iterator(); it.HasNext(); n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(it.Next()); err != nil {
			return err
		}
		if progress != nil && n%1024 == 0 {
			progress(Progress{"export", n, total, "documents"})
		}
	}
	return nil
}

// writeLines returns a function that writes each text on a line.
func writeLines(texts []string) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, t := range texts {
			if _, err := io.WriteString(w, t+"\n"); err != nil {
				return err
			}
		}
		return nil
	}
}

// exportMetadata writes the payloads, one per line. It writes no file if no document has a
// payload.
func (s *Snapshot) exportMetadata(ctx context.Context, folder *files.AtomicFolder, docs *roaring.Bitmap) error {
	lines := 0
	err := folder.Write(metadataFile, func(w io.Writer) error {
		return visitDocuments(ctx, docs, func(ordinal uint32) error {
			payload, err := s.Payload(ordinal)
			if err != nil || payload == nil {
				return err
			}
			lines++
			if payload, err = payloadLine(s.ID(ordinal), payload); err != nil {
				return fmt.Errorf("document %d, %q: %w", ordinal, s.ID(ordinal), err)
			}
			if _, err := w.Write(payload); err != nil {
				return err
			}
			_, err = w.Write([]byte{'\n'})
			return err
		}, nil)
	})
	if err != nil || lines > 0 {
		return err
	}
	return os.Remove(filepath.Join(folder.Path(), metadataFile))
}

// payloadLine returns a payload as a line of JSON that names its document:
//
// - An object with the id in _id or id, such as from a file of payloads, stays as it is.
// - Another object without _id gets a field _id.
// - Anything else becomes the field metadata of an object with the field _id.
//
// Bytes in JSON that are not UTF-8, which older indexes may have, become U+FFFD.
func payloadLine(id string, payload []byte) ([]byte, error) {
	if json.Valid(payload) {
		payload = bytes.ToValidUTF8(payload, []byte("\ufffd"))
	}
	var line bytes.Buffer
	isJSON := json.Compact(&line, payload) == nil
	var fields map[string]json.RawMessage
	isObject := isJSON && json.Unmarshal(payload, &fields) == nil && fields != nil
	idValue, hasID := fields["_id"]
	if !hasID {
		idValue = fields["id"]
	}
	var name string
	if isObject && (string(idValue) == id || json.Unmarshal(idValue, &name) == nil && name == id) {
		if bytes.ContainsAny(payload, "\r\n") {
			payload = line.Bytes()
		}
		return payload, nil
	}
	head, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	head = append([]byte(`{"_id":`), head...)
	switch {
	case isObject && !hasID && len(fields) > 0:
		return append(append(head, ','), line.Bytes()[1:]...), nil
	case !isJSON && !utf8.Valid(payload):
		return nil, fmt.Errorf("%w: metadata is neither JSON nor UTF-8", vectors.ErrFormat)
	case !isJSON:
		line.Reset()
		text, err := json.Marshal(string(payload))
		if err != nil {
			return nil, err
		}
		line.Write(text)
	}
	return append(append(append(head, `,"metadata":`...), line.Bytes()...), '}'), nil
}

// ExportEngine writes documents as an index folder that fast-plaid and next-plaid load. There,
// documents have numbers in order of insertion; their ids are written to ids.txt in the same
// folder, one per line.
//
// An index with scales of residuals, which is the default, cannot be exported in this format: the
// error wraps [interop.ErrUnsupported].
func (s *Snapshot) ExportEngine(ctx context.Context, dir string, opts *ExportOptions) (r *ExportReport, err error) {
	o := valueOrZero(opts)
	defer storage.Guard(s.Path(), &err)()
	h, err := engineHeader(s.Quantizer())
	if err != nil {
		return nil, err
	}
	docs, err := o.selectDocuments(ctx, s)
	if err != nil {
		return nil, err
	}
	ids, lengths, err := s.idsAndLengths(ctx, docs)
	if err != nil {
		return nil, err
	}
	h.DocLens = lengths
	w, err := interop.Create(dir, h)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := s.writeTokens(ctx, w, docs, o.Progress); err != nil {
		return nil, err
	}
	if err := w.WriteFile(idsFile, writeLines(ids)); err != nil {
		return nil, err
	}
	return s.newExportReport(docs, lengths), w.Commit(ctx)
}

// engineHeader returns the header of an index folder with the codec.
func engineHeader(c *codec.Quantizer) (h interop.Header, err error) {
	k := c.Kernel()
	if k.DimScale != nil || k.CentroidScale != nil {
		return h, fmt.Errorf("%w: the format cannot store scales of residuals, which this index has",
			interop.ErrUnsupported)
	}
	h = interop.Header{
		Dim:       c.Dim,
		Nbits:     c.Nbits,
		Centroids: c.Centroids(),
		Weights:   k.Codebook.Weights(),
		Cutoffs:   c.Cutoffs,
	}
	if h.Cutoffs == nil { // the codec rounds to the nearest weight: cutoffs are the midpoints
		for i := 1; i < len(h.Weights); i++ {
			h.Cutoffs = append(h.Cutoffs, (h.Weights[i-1]+h.Weights[i])/2)
		}
	}
	return h, nil
}

// writeTokens writes the codes and residuals of documents.
func (s *Snapshot) writeTokens(
	ctx context.Context, w *interop.Writer, docs *roaring.Bitmap, progress func(Progress),
) error {
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
			if !docs.Contains(first + uint32(d)) {
				continue
			}
			codes = codes[:0]
			for t := ch.Offsets[d]; t < ch.Offsets[d+1]; t++ {
				codes = append(codes, ch.Code(int(t)))
			}
			if err := w.WriteBlock(codes, chunkTokens(ch, d, s.Codec()).residuals); err != nil {
				return err
			}
		}
		reportProgress(progress, Progress{"export", int64(i + 1), int64(s.Chunks()), "chunks"})
	}
	return nil
}

// idsAndLengths returns the ids of documents and their numbers of tokens.
func (s *Snapshot) idsAndLengths(ctx context.Context, docs *roaring.Bitmap) (ids []string, lengths []int32, err error) {
	err = visitDocuments(ctx, docs, func(ordinal uint32) error {
		chunk, doc, _ := s.Locate(ordinal)
		_, offsets := s.ChunkDocs(chunk)
		n := offsets[doc+1] - offsets[doc]
		if n > math.MaxInt32 {
			return fmt.Errorf("document %d: %d tokens", ordinal, n)
		}
		ids, lengths = append(ids, s.ID(ordinal)), append(lengths, int32(n))
		return nil
	}, nil)
	return ids, lengths, err
}
