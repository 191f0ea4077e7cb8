package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// openColBERT opens a folder of the reference implementation of ColBERT.
func (x *Index) openColBERT() error {
	x.Engine = EngineColBERT
	name := "metadata.json"
	if !x.folder.hasFile(name) && x.folder.hasFile("plan.json") {
		name = "plan.json"
		x.addWarning("metadata.json is missing, so indexing may not have finished; read plan.json")
	}
	// Read the metadata and the codec.
	meta, err := x.folder.readObject(name)
	if err != nil {
		return err
	}
	config := object{}
	if raw, ok := meta["config"]; ok {
		if err := json.Unmarshal(raw, &config); err != nil {
			return fmt.Errorf("%w: %s: config: %w", ErrBroken, name, err)
		}
	}
	nbits, _, err := config.integer(name, "nbits")
	if err != nil {
		return err
	}
	p := arrayFiles{
		centroids: arrayRef{file: "centroids.pt"},
		cutoffs:   arrayRef{file: "buckets.pt", tensor: 0, tensors: 2},
		weights:   arrayRef{file: "buckets.pt", tensor: 1, tensors: 2},
	}
	if err := x.readCodec(p, nbits); err != nil {
		return err
	}
	// Read the document lengths, and check the chunks.
	chunks, err := x.readChunks(name, meta, "pt")
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if err := x.checkChunk(c, exactRows); err != nil {
			return err
		}
	}
	x.files.chunks = chunks
	// Find the inverted lists.
	for _, lists := range []string{"ivf.pid.pt", "ivf.pt"} {
		if x.folder.hasFile(lists) {
			x.files.ivf = arrayRef{file: lists, tensor: 0, tensors: 2}
			x.files.ivfLengths = arrayRef{file: lists, tensor: 1, tensors: 2}
			x.files.ivfItems = documentItems
			if lists == "ivf.pt" {
				x.files.ivfItems = tokenItems
			}
			break
		}
	}
	return x.compareCounts(name, meta)
}

// plaidKeys are the keys of metadata.json of fast-plaid and next-plaid that do not change the
// meaning of the arrays.
var plaidKeys = []string{
	"num_chunks", "nbits", "num_partitions", "num_embeddings", "num_documents", "avg_doclen",
	"compress_only", "embedding_dim", "next_plaid_compatible", "frozen", "mutable",
}

// openPlaid opens a folder of fast-plaid or next-plaid.
func (x *Index) openPlaid() error {
	const name = "metadata.json"
	meta, err := x.folder.readObject(name)
	if err != nil {
		return err
	}
	x.Engine = EngineFastPlaid
	if _, ok := meta["embedding_dim"]; ok || meta.isTrue("next_plaid_compatible") {
		x.Engine = EngineNextPlaid
	}
	for key := range meta {
		switch {
		case key == "binary" && meta.isTrue(key), key == "ternary" && meta.isTrue(key):
			return fmt.Errorf("%w: %s says %s: residuals of another codec", ErrUnsupported, name, key)
		case meta.isTrue(key) && !slices.Contains(plaidKeys, key):
			x.addWarning("%s sets %.40q, which is unknown here", name, key)
		}
	}
	slices.Sort(x.Warnings) // map order is random
	nbits, _, err := meta.integer(name, "nbits")
	if err != nil {
		return err
	}
	if err := x.readCodec(npyCodecFiles(), nbits); err != nil {
		return err
	}
	chunks, err := x.readChunks(name, meta, "npy")
	if err != nil {
		return err
	}
	if x.files.chunks, err = x.selectChunks(chunks); err != nil {
		return err
	}
	x.findNPYLists()
	return x.compareCounts(name, meta)
}

// readChunks reads the document lengths of all chunks, in numeric order.
func (x *Index) readChunks(name string, meta object, suffix string) ([]chunk, error) {
	n, ok, err := meta.integer(name, "num_chunks")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s lacks num_chunks", ErrBroken, name)
	}
	var chunks []chunk
	for i := range n {
		var rows int64
		if x.DocLens, rows, err = x.folder.appendLengths(x.DocLens, fmt.Sprintf("doclens.%d.json", i)); err != nil {
			return nil, err
		}
		if x.Tokens += rows; x.Tokens > math.MaxInt {
			return nil, fmt.Errorf("%w: %d tokens", ErrUnsupported, x.Tokens)
		}
		chunks = append(chunks, chunk{
			codes:     arrayRef{file: fmt.Sprintf("%d.codes.%s", i, suffix)},
			residuals: arrayRef{file: fmt.Sprintf("%d.residuals.%s", i, suffix)},
			rows:      int(rows),
		})
	}
	if next := fmt.Sprintf("doclens.%d.json", n); x.folder.hasFile(next) {
		x.addWarning("%s is beyond the %d chunks of %s and was left out", next, n, name)
	}
	return chunks, nil
}

// selectChunks selects the files to read: the chunks, which are authoritative if they are complete,
// or the merged files, whose first rows have the same content. fast-plaid 1.7 and frozen folders
// have only the merged files.
func (x *Index) selectChunks(chunks []chunk) ([]chunk, error) {
	// Check the chunks.
	var complete []chunk
	var firstFault error
	anyFound := false
	for _, c := range chunks {
		anyFound = anyFound || x.folder.hasFile(c.codes.file) || x.folder.hasFile(c.residuals.file)
		if c.rows == 0 && !x.folder.hasFile(c.codes.file) && !x.folder.hasFile(c.residuals.file) {
			continue
		}
		err := x.checkChunk(c, exactRows)
		if err != nil && !isContentError(err) {
			return nil, err
		}
		if err != nil && firstFault == nil {
			firstFault = err
		}
		complete = append(complete, c)
	}
	if firstFault == nil {
		return complete, nil
	}
	// They are not complete: check the merged files.
	if anyFound && !x.folder.hasFile("merged_codes.npy") && !x.folder.hasFile("merged_residuals.npy") {
		return nil, firstFault
	}
	merged := chunk{
		codes:     arrayRef{file: "merged_codes.npy"},
		residuals: arrayRef{file: "merged_residuals.npy"},
		rows:      int(x.Tokens),
	}
	err := x.checkChunk(merged, atLeastRows)
	if err == nil {
		err = x.checkManifests(chunks)
	}
	switch {
	case err == nil:
		if anyFound {
			x.addWarning("shards are incomplete (%v): read the merged files", firstFault)
		}
		return []chunk{merged}, nil
	case !anyFound || !isContentError(err):
		return nil, err
	}
	return nil, fmt.Errorf("%w; merged files: %w", firstFault, err)
}

// checkManifests compares the rows of each chunk in the merged files with its document lengths.
// fast-plaid lists the chunks at the top level of the manifest, next-plaid under "chunks".
func (x *Index) checkManifests(chunks []chunk) error {
	for _, kind := range []string{"codes", "residuals"} {
		name := "merged_" + kind + ".manifest.json"
		manifest, err := x.folder.readObject(name)
		if errors.Is(err, errMissing) {
			continue
		}
		if err != nil {
			return err
		}
		if raw, ok := manifest["chunks"]; ok {
			manifest = nil
			if err := json.Unmarshal(raw, &manifest); err != nil {
				return fmt.Errorf("%w: %s: chunks: %w", ErrBroken, name, err)
			}
		}
		for _, c := range chunks {
			file := strings.Replace(c.codes.file, "codes", kind, 1)
			raw, ok := manifest[file]
			if !ok {
				if c.rows > 0 {
					return fmt.Errorf("%w: %s lacks %s", ErrBroken, name, file)
				}
				continue
			}
			var entry object
			if err := json.Unmarshal(raw, &entry); err != nil {
				return fmt.Errorf("%w: %s: %s: %w", ErrBroken, name, file, err)
			}
			rows, ok, err := entry.integer(name, "rows")
			if err != nil {
				return err
			}
			if ok && rows != int64(c.rows) {
				return fmt.Errorf("%w: %s: %s has %d rows, its document lengths add to %d",
					ErrBroken, name, file, rows, c.rows)
			}
		}
	}
	return nil
}
