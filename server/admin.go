package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// importedOut describes an index that was imported.
type importedOut struct {
	Name      string   `json:"name"`
	Engine    string   `json:"engine" doc:"whose index it was"`
	Documents int      `json:"num_documents"`
	Passages  int      `json:"num_passages" doc:"in which some of them are stored"`
	Tokens    int64    `json:"num_embeddings"`
	Dimension int      `json:"dimension"`
	Nbits     int      `json:"nbits"`
	Warnings  []string `json:"warnings"`
}

// compactedOut has the size of an index file before and after it was compacted.
type compactedOut struct {
	Name   string `json:"name"`
	Before int64  `json:"bytes_before" doc:"of the index file"`
	After  int64  `json:"bytes_after"`
}

// verifiedOut reports that an index was checked.
type verifiedOut struct {
	Name  string `json:"name"`
	Sound bool   `json:"sound"`
}

// recallIn asks for the recall of searches.
type recallIn struct {
	Queries []queryIn `json:"queries"`
	Params  paramsIn  `json:"params,omitzero"`
}

// recallOut has the recall of searches, compared with exhaustive ones.
type recallOut struct {
	K       int                  `json:"k"`
	Queries int                  `json:"num_queries"`
	Recall  float64              `json:"recall"`
	Worst   float64              `json:"worst" doc:"the lowest of a query"`
	Lost    map[search.Stage]int `json:"lost" doc:"documents that were not found, by the stage that dropped them"`
}

// headerDigest is the header of RFC 9530 for the digest of a body.
const headerDigest = "Repr-Digest"

func adminRoutes() []route {
	const tag = "admin"
	digest := param{headerDigest, "header", "sha-256=:BASE64: of the file; checked", object{"type": "string"}}
	return []route{
		{
			method:      "GET",
			pattern:     "/indices/{name}/backup",
			operationID: "download_backup",
			tag:         tag,
			permission:  Admin,
			group:       groupTransfer,
			endless:     true,
			status:      http.StatusOK,
			outType:     mediaBytes,
			summary:     "The index as it is now, as one file",
			codes:       []Code{CodeNotSupported},
			doc: "The index is checked before the first byte. The trailer Repr-Digest has the digest of " +
				"what was sent; a connection that breaks before it sent no whole file. Searches and changes go on " +
				"meanwhile.",
			handle: downloadBackup,
		},
		{
			method:      "PUT",
			pattern:     "/indices/{name}/backup",
			operationID: "upload_backup",
			tag:         tag,
			permission:  Admin,
			group:       groupTransfer,
			endless:     true,
			status:      http.StatusOK,
			inType:      mediaBytes,
			outType:     mediaJSON,
			out:         infoOut{},
			params:      []param{digest},
			codes:       []Code{CodeIndexExists, CodeNotSupported, CodeTooManyIndexes},
			summary:     "Make an index of a backup, or of any index file",
			doc: "The file is checked in full before it takes its place. The index must not be there, or " +
				"have no documents.",
			handle: uploadBackup,
		},
		{
			method:      "PUT",
			pattern:     "/indices/{name}/import",
			operationID: "import_index",
			tag:         tag,
			permission:  Admin,
			group:       groupTransfer,
			endless:     true,
			status:      http.StatusOK,
			inType:      mediaTar,
			outType:     mediaJSON,
			out:         importedOut{},
			codes:       []Code{CodeIndexExists, CodeNotSupported, CodeTooManyIndexes},
			summary:     "Make an index of one of ColBERT, fast-plaid or next-plaid",
			doc: "The body is a tar archive of the index folder. A file ids.txt in it names the documents, " +
				"one a line; without it they have the ids that PyLate keeps, or are named by row.",
			handle: importIndex,
		},
		typedRoute(route{
			method:      "POST",
			pattern:     "/indices/{name}/retrain",
			operationID: "retrain_index",
			tag:         tag,
			permission:  Admin,
			group:       groupWrite,
			endless:     true,
			summary:     "Train an index anew on what it holds",
			codes:       []Code{CodeNotSupported},
			doc: "Searches and changes go on; the answer comes when the new codec is in use. GET " +
				"/indices/{name}/stats says under growth whether it would pay. A client that goes away ends it, and " +
				"the index stays as it is.",
		}, retrainIndex),
		typedRoute(route{
			method:      "POST",
			pattern:     "/indices/{name}/compact",
			operationID: "compact_index",
			tag:         tag,
			permission:  Admin,
			group:       groupWrite,
			endless:     true,
			summary:     "Rewrite an index without its deleted documents",
			codes:       []Code{CodeNotSupported},
			doc: "Searches go on, and changes wait. Until the new file is complete it needs as much free " +
				"space as the old one takes. A client that goes away ends it, and the index stays as it is. A " +
				"service compacts by itself once a quarter of the file, and 4 MiB, are not in use.",
		}, compactIndex),
		typedRoute(route{
			method:      "POST",
			pattern:     "/indices/{name}/verify",
			operationID: "verify_index",
			tag:         tag,
			permission:  Admin,
			group:       groupWrite,
			endless:     true,
			summary:     "Read and check every byte of an index",
			codes:       []Code{CodeNotSupported},
		}, verifyIndex),
		typedRoute(route{
			method:      "POST",
			pattern:     "/indices/{name}/recall",
			operationID: "check_recall",
			tag:         tag,
			permission:  Read,
			group:       groupSearch,
			summary:     "How many of the best documents searches find",
			codes:       []Code{CodeDimension, CodeNotSupported},
			params:      []param{lenientParam},
			doc: "Each query is answered as params say and by an exhaustive search, which is slow in a " +
				"large index.",
			example: `{"queries": [{"embeddings": [[1, 0], [0, 1]]}], "params": {"top_k": 10}}`,
		}, measureRecall),
	}
}

// digestHeader returns the value of headerDigest for a hash.
func digestHeader(sum hash.Hash) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum.Sum(nil)) + ":"
}

// downloadBackup answers GET /indices/{name}/backup.
func downloadBackup(q *request) error {
	c, source, err := collectionAs[collection.Backuper](q, "a backup")
	if err != nil {
		return err
	}
	h := q.w.Header()
	if q.Method == http.MethodHead { // it is answered without reading the index
		v, err := c.Snapshot(q.ctx)
		if err != nil {
			return err
		}
		h.Set("Content-Type", mediaBytes)
		q.w.WriteHeader(http.StatusOK)
		return v.Close()
	}
	h.Set("Trailer", headerDigest)
	h.Set("Content-Type", mediaBytes)
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", c.Name()+".plaid"))
	sum := sha256.New()
	if _, err := source.Backup(q.ctx, io.MultiWriter(q.w, sum)); err != nil {
		h.Del("Trailer") // before the first byte the error is the answer
		h.Del("Content-Disposition")
		return err
	}
	h.Set(headerDigest, digestHeader(sum))
	return nil
}

// prepareRestore returns the catalog as one that can create an index from an upload; operation names the
// upload in errors. Before anything is received it checks that the name is valid, that the index has no
// documents, and that one more index is allowed. Call done when the index was created, or will not be.
func (q *request) prepareRestore(operation string) (r collection.Restorer, done func(), err error) {
	if err := collection.CheckName(q.indexName()); err != nil {
		return nil, nil, err
	}
	r, ok := q.server.collections.(collection.Restorer)
	if !ok {
		return nil, nil, collection.Unsupported(operation)
	}
	if c, err := q.server.collections.Get(q.indexName()); err == nil {
		if v, err := c.Snapshot(q.ctx); err == nil { // an index without documents has no snapshot
			return nil, nil, errors.Join(fmt.Errorf("%w: %q has documents", collection.ErrExists, q.indexName()),
				v.Close())
		}
	}
	done, err = q.reserveIndexName(q.indexName())
	return r, done, err
}

// uploadBackup answers PUT /indices/{name}/backup.
func uploadBackup(q *request) error {
	want := q.Header.Get(headerDigest)
	if want != "" && (!strings.HasPrefix(want, "sha-256=:") || !strings.HasSuffix(want, ":")) {
		return badRequest("%s is %q; want sha-256=:BASE64:", headerDigest, want)
	}
	restorer, done, err := q.prepareRestore("a restored backup")
	if err != nil {
		return err
	}
	defer done()
	sum := sha256.New()
	q.body.digest = sum // of the bytes as they are sent, compressed or not
	body := &checkedReader{Reader: q.Body, check: func() error {
		if got := digestHeader(sum); want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 0 {
			return badRequest("the body has %s %s, not %s", headerDigest, got, want)
		}
		return nil
	}}
	if err := restorer.Restore(q.ctx, q.indexName(), body); err != nil {
		return uploadError(err)
	}
	out, err := getIndex(q, nil)
	if err != nil {
		return err
	}
	return q.answerJSON(http.StatusOK, out)
}

// checkedReader is a reader that calls check at its end, and returns its error in place of io.EOF.
type checkedReader struct {
	io.Reader
	check func() error
}

func (e *checkedReader) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err == io.EOF {
		if err := e.check(); err != nil {
			return n, err
		}
	}
	return n, err
}

// uploadError turns an error of restoring an uploaded file into one of the request: a damaged file is not
// the service's fault.
func uploadError(err error) error {
	var p *Problem
	if errors.As(err, &p) || isTransportError(err) {
		return err
	}
	for _, damage := range []error{storage.ErrNotIndex, storage.ErrCorrupt, storage.ErrVersion, storage.ErrUnfinished} {
		if errors.Is(err, damage) {
			return badRequest("the file is no sound index: %w", err)
		}
	}
	return err
}

// importIndex answers PUT /indices/{name}/import.
func importIndex(q *request) (err error) {
	restorer, done, err := q.prepareRestore("an import")
	if err != nil {
		return err
	}
	defer done()
	dir, err := os.MkdirTemp(q.server.options.UploadDir, "plaid-import-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	folder, err := unpackArchive(q.ctx, q.Body, dir)
	if err != nil {
		return err
	}
	r, err := restorer.Import(q.ctx, q.indexName(), folder)
	if err != nil {
		return importError(err, dir)
	}
	out := importedOut{q.indexName(), r.Engine, r.Docs, r.Passages, r.Tokens, r.Dim, r.Nbits, r.Warnings}
	if out.Warnings == nil {
		out.Warnings = []string{}
	}
	return q.answerJSON(http.StatusOK, out)
}

// retrainIndex answers POST /indices/{name}/retrain.
func retrainIndex(q *request, _ *noBody) (index.RetrainReport, error) {
	_, retrainer, err := collectionAs[collection.Retrainer](q, "training anew")
	if err != nil {
		return index.RetrainReport{}, err
	}
	r, err := retrainer.Retrain(q.ctx)
	if err != nil {
		return index.RetrainReport{}, err
	}
	return *r, nil
}

// compactIndex answers POST /indices/{name}/compact.
func compactIndex(q *request, _ *noBody) (compactedOut, error) {
	c, compacter, err := collectionAs[collection.Compacter](q, "compaction")
	if err != nil {
		return compactedOut{}, err
	}
	before, after, err := compacter.Compact(q.ctx)
	return compactedOut{c.Name(), before, after}, err
}

// verifyIndex answers POST /indices/{name}/verify.
func verifyIndex(q *request, _ *noBody) (verifiedOut, error) {
	c, verifier, err := collectionAs[collection.Verifier](q, "a check")
	if err != nil {
		return verifiedOut{}, err
	}
	return verifiedOut{Name: c.Name(), Sound: true}, verifier.Verify(q.ctx)
}

// measureRecall answers POST /indices/{name}/recall.
func measureRecall(q *request, in *recallIn) (out recallOut, err error) {
	if len(in.Queries) == 0 {
		return out, badRequest("queries is empty")
	}

	// The queries.
	tasks := make([]task, len(in.Queries))
	qs := make([]search.Query, len(in.Queries))
	for i := range in.Queries {
		if in.Queries[i].hasRestriction() {
			return out, badRequest("query %d: recall is measured over all documents", i).withPlace(Where{Query: &i})
		}
		if qs[i], err = in.Queries[i].toQuery(i); err != nil {
			return out, err
		}
		tasks[i].query = qs[i]
	}
	err = q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		traceable, ok := v.(collection.Traceable)
		if !ok {
			return collection.Unsupported("a measured recall")
		}

		// The options.
		page := in.Params.searchPage(v.MaxHits())
		k := page.K
		if page.Offset != 0 || page.MinScore != nil {
			return badRequest("recall is measured of the best documents, without params.offset and params.min_score")
		}
		if k == 0 {
			return badRequest("params.top_k is 0")
		}
		o, err := in.Params.searchOptions(page)
		if err != nil {
			return err
		}

		// The exhaustive search, and the comparison with it.
		reference, err := quality.Reference(q.ctx, traceable.Tracer(), qs, k, nil)
		if err != nil {
			return q.dimensionError(v, tasks, err)
		}
		r, err := quality.MeasureRecall(q.ctx, traceable.Tracer(), qs, o, reference, nil)
		if err != nil {
			return err
		}
		out = recallOut{
			K:       k,
			Queries: len(qs),
			Recall:  r.Mean(),
			Worst:   1,
			Lost:    r.Lost(),
		}
		for i := range r.Queries {
			out.Worst = min(out.Worst, r.Queries[i].Recall())
		}
		return nil
	})
	return out, err
}

// folderErrors are errors of importing a folder that are the fault of the folder.
var folderErrors = []error{
	interop.ErrNotIndex, interop.ErrBroken, interop.ErrUnsupported, interop.ErrChanged,
	vectors.ErrFormat, vectors.ErrShape, vectors.ErrValue, vectors.ErrID, fs.ErrNotExist,
}

// importError turns an error of importing a folder below dir into one of the request.
func importError(err error, dir string) error {
	for _, known := range folderErrors {
		if errors.Is(err, known) {
			p := badRequest("the folder cannot be imported: %w", err)
			p.Message = withoutFolder(p.Message, dir)
			return p
		}
	}
	return uploadError(err)
}

// withoutFolder removes the path of the folder in which an archive was unpacked from a message: clients
// must not learn it.
func withoutFolder(message, dir string) string {
	return strings.NewReplacer(
		dir+string(filepath.Separator), "",
		"index folder "+dir, "the archive",
		dir, "the archive",
	).Replace(message)
}
