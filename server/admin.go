package server

import (
	"archive/tar"
	"context"
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
	"syscall"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// importedOut says what was taken over.
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

type compactedOut struct {
	Name   string `json:"name"`
	Before int64  `json:"bytes_before" doc:"of the index file"`
	After  int64  `json:"bytes_after"`
}

type verifiedOut struct {
	Name  string `json:"name"`
	Sound bool   `json:"sound"`
}

// recallIn asks how many of the best documents searches find.
type recallIn struct {
	Queries []queryIn `json:"queries"`
	Params  paramsIn  `json:"params,omitzero"`
}

type recallOut struct {
	K       int                  `json:"k"`
	Queries int                  `json:"num_queries"`
	Recall  float64              `json:"recall" doc:"mean share of the k best documents of an exhaustive search that are found"`
	Worst   float64              `json:"worst" doc:"the lowest of a query"`
	Lost    map[search.Stage]int `json:"lost" doc:"documents that were not found, by the stage that dropped them"`
}

// headerDigest is that of RFC 9530.
const headerDigest = "Repr-Digest"

func adminRoutes() []route {
	const tag = "admin"
	digest := param{headerDigest, "header", "sha-256=:BASE64: of the file; checked", object{"type": "string"}}
	return []route{
		{method: "GET", pattern: "/indices/{name}/backup", id: "download_backup", tag: tag, need: Admin, group: transferring, stream: true,
			status: http.StatusOK, outType: mediaBytes, summary: "The index as it is now, as one file", fails: []Code{CodeNotSupported},
			doc: "The index is checked before the first byte. The trailer Repr-Digest has the digest of what was sent; a connection that breaks before it sent no whole file. Searches and changes go on meanwhile.",
			do:  download},
		{method: "PUT", pattern: "/indices/{name}/backup", id: "upload_backup", tag: tag, need: Admin, group: transferring, stream: true,
			status: http.StatusOK, inType: mediaBytes, outType: mediaJSON, out: infoOut{}, params: []param{digest},
			fails:   []Code{CodeIndexExists, CodeNotSupported, CodeTooManyIndexes},
			summary: "Make an index of a backup, or of any index file",
			doc:     "The file is checked in full before it takes its place. The index must not be there, or have no documents.", do: upload},
		{method: "PUT", pattern: "/indices/{name}/import", id: "import_index", tag: tag, need: Admin, group: transferring, stream: true,
			status: http.StatusOK, inType: mediaTar, outType: mediaJSON, out: importedOut{},
			fails:   []Code{CodeIndexExists, CodeNotSupported, CodeTooManyIndexes},
			summary: "Make an index of one of ColBERT, fast-plaid or next-plaid",
			doc:     "The body is a tar archive of the index folder. A file ids.txt in it names the documents, one a line; without it they have the ids that PyLate keeps, or are named by row.", do: importIndex},
		typed(route{method: "POST", pattern: "/indices/{name}/retrain", id: "retrain_index", tag: tag, need: Admin, group: writing, stream: true,
			summary: "Train an index anew on what it holds", fails: []Code{CodeNotSupported},
			doc: "Searches and changes go on; the answer comes when the new codec is in use. GET /indices/{name}/stats says under growth whether it would pay. A client that goes away ends it, and the index stays as it is."}, retrain),
		typed(route{method: "POST", pattern: "/indices/{name}/compact", id: "compact_index", tag: tag, need: Admin, group: writing, stream: true,
			summary: "Rewrite an index without its deleted documents", fails: []Code{CodeNotSupported},
			doc: "Searches go on, and changes wait. Until the new file is complete it needs as much free space as the old one takes. A client that goes away ends it, and the index stays as it is. A service compacts by itself once a quarter of the file, and 4 MiB, are not in use."}, compact),
		typed(route{method: "POST", pattern: "/indices/{name}/verify", id: "verify_index", tag: tag, need: Admin, group: writing, stream: true,
			summary: "Read and check every byte of an index", fails: []Code{CodeNotSupported}}, verify),
		typed(route{method: "POST", pattern: "/indices/{name}/recall", id: "check_recall", tag: tag, need: Read, group: searching,
			summary: "How many of the best documents searches find", fails: []Code{CodeDimension, CodeNotSupported},
			params:  []param{lenientParam},
			doc:     "Each query is answered as params say and by an exhaustive search, which is slow in a large index.",
			example: `{"queries": [{"embeddings": [[1, 0], [0, 1]]}], "params": {"top_k": 10}}`}, recall),
	}
}

func digestText(sum hash.Hash) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum.Sum(nil)) + ":"
}

func download(q *request) error {
	c, from, err := able[collection.Backuper](q, "a backup")
	if err != nil {
		return err
	}
	h := q.w.Header()
	if q.Method == http.MethodHead { // nothing of the index is read for it
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
	if _, err := from.Backup(q.ctx, io.MultiWriter(q.w, sum)); err != nil {
		h.Del("Trailer") // before the first byte the error is the answer
		h.Del("Content-Disposition")
		return err
	}
	h.Set(headerDigest, digestText(sum))
	return nil
}

// restorer makes collections of what is sent, if those of the service do. What is wrong
// with the name, that documents are there, or that there is no room for one more index, is told
// before anything is received. done is to be called when the index is there, or will not be.
func (q *request) restorer(what string) (r collection.Restorer, done func(), err error) {
	if err := collection.CheckName(q.index()); err != nil {
		return nil, nil, err
	}
	r, ok := q.s.collections.(collection.Restorer)
	if !ok {
		return nil, nil, collection.Unsupported(what)
	}
	if c, err := q.s.collections.Get(q.index()); err == nil {
		if v, err := c.Snapshot(q.ctx); err == nil {
			return nil, nil, errors.Join(fmt.Errorf("%w: %q has documents", collection.ErrExists, q.index()), v.Close())
		}
	}
	done, err = q.room(q.index())
	return r, done, err
}

func upload(q *request) error {
	want := q.Header.Get(headerDigest)
	if want != "" && (!strings.HasPrefix(want, "sha-256=:") || !strings.HasSuffix(want, ":")) {
		return bad("%s is %q; want sha-256=:BASE64:", headerDigest, want)
	}
	to, done, err := q.restorer("a restored backup")
	if err != nil {
		return err
	}
	defer done()
	sum := sha256.New()
	q.body.sum = sum // a digest is one of what is sent, compressed or not
	body := &ending{Reader: q.Body, check: func() error {
		if got := digestText(sum); want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 0 {
			return bad("the body has %s %s, not %s", headerDigest, got, want)
		}
		return nil
	}}
	if err := to.Restore(q.ctx, q.index(), body); err != nil {
		return badFile(err)
	}
	out, err := getIndex(q, nil)
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, out)
}

// ending is a reader that is checked at its end.
type ending struct {
	io.Reader
	check func() error
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err == io.EOF {
		if err := e.check(); err != nil {
			return n, err
		}
	}
	return n, err
}

// badFile is the error of a file that was uploaded: that it is damaged is the fault of
// the request and not of the service.
func badFile(err error) error {
	var p *Problem
	switch {
	case errors.As(err, &p), isTransport(err):
		return err
	case errors.Is(err, storage.ErrNotIndex), errors.Is(err, storage.ErrCorrupt), errors.Is(err, storage.ErrVersion), errors.Is(err, storage.ErrUnfinished):
		return bad("the file is no sound index: %w", err)
	}
	return err
}

func importIndex(q *request) (err error) {
	to, done, err := q.restorer("an import")
	if err != nil {
		return err
	}
	defer done()
	dir, err := os.MkdirTemp(q.s.o.UploadDir, "plaid-import-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	folder, err := unpack(q.ctx, q.Body, dir)
	if err != nil {
		return err
	}
	r, err := to.Import(q.ctx, q.index(), folder)
	if err != nil {
		return badImport(err, dir)
	}
	out := importedOut{q.index(), r.Engine, r.Docs, r.Passages, r.Tokens, r.Dim, r.Nbits, r.Warnings}
	if out.Warnings == nil {
		out.Warnings = []string{}
	}
	return q.answer(http.StatusOK, out)
}

func retrain(q *request, _ *nothing) (index.RetrainReport, error) {
	_, trained, err := able[collection.Retrainer](q, "training anew")
	if err != nil {
		return index.RetrainReport{}, err
	}
	r, err := trained.Retrain(q.ctx)
	if err != nil {
		return index.RetrainReport{}, err
	}
	return *r, nil
}

func compact(q *request, _ *nothing) (compactedOut, error) {
	c, compacts, err := able[collection.Compacter](q, "compaction")
	if err != nil {
		return compactedOut{}, err
	}
	before, after, err := compacts.Compact(q.ctx)
	return compactedOut{c.Name(), before, after}, err
}

func verify(q *request, _ *nothing) (verifiedOut, error) {
	c, checked, err := able[collection.Verifier](q, "a check")
	if err != nil {
		return verifiedOut{}, err
	}
	return verifiedOut{c.Name(), true}, checked.Verify(q.ctx)
}

func recall(q *request, in *recallIn) (out recallOut, err error) {
	if len(in.Queries) == 0 {
		return out, bad("queries is empty")
	}
	tasks := make([]task, len(in.Queries))
	qs := make([]search.Query, len(in.Queries))
	for i := range in.Queries {
		if in.Queries[i].restricts() {
			return out, bad("query %d: recall is measured over all documents", i).at(Where{Query: &i})
		}
		if qs[i], err = in.Queries[i].query(i); err != nil {
			return out, err
		}
		tasks[i].query = qs[i]
	}
	err = q.view(func(_ collection.Collection, v collection.Snapshot) error {
		measured, ok := v.(collection.Measured)
		if !ok {
			return collection.Unsupported("a measured recall")
		}
		page := in.Params.page(v.Most())
		k := page.K
		if page.Offset != 0 || page.MinScore != nil {
			return bad("recall is measured of the best documents, without params.offset and params.min_score")
		}
		if k == 0 {
			return bad("params.top_k is 0")
		}
		o, err := in.Params.options(page)
		if err != nil {
			return err
		}
		reference, err := quality.Reference(q.ctx, measured.Traced(), qs, k, nil)
		if err != nil {
			return q.dimension(v, tasks, err)
		}
		r, err := quality.MeasureRecall(q.ctx, measured.Traced(), qs, o, reference, nil)
		if err != nil {
			return err
		}
		out = recallOut{K: k, Queries: len(qs), Recall: r.Mean(), Worst: 1, Lost: r.Lost()}
		for i := range r.Queries {
			out.Worst = min(out.Worst, r.Queries[i].Recall())
		}
		return nil
	})
	return out, err
}

// maxMembers bounds the files of an archive: an index folder has a few for each chunk
// of documents.
const maxMembers = 1 << 20

// unpack writes the files of a tar archive below dir and returns the folder that they
// are in: dir, or the one folder that all of them are in. Only regular files and
// folders are taken, under names that stay below dir. Sparse files are not, so that the files
// take no more space than the archive.
func unpack(ctx context.Context, r io.Reader, dir string) (string, error) {
	archive := tar.NewReader(r)
	for members := 0; ; members++ {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", badTar(err)
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		name := filepath.FromSlash(strings.TrimSuffix(h.Name, "/"))
		switch {
		case h.Typeflag == tar.TypeXGlobalHeader:
			continue
		case !filepath.IsLocal(name) || strings.ContainsRune(h.Name, '\\'):
			return "", bad("the archive has a file that would be outside of it: %q", h.Name)
		case members == maxMembers:
			return "", bad("the archive has more than %d files", maxMembers)
		case h.Typeflag == tar.TypeDir:
			if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
				return "", taken(err, h.Name)
			}
			continue
		case h.Typeflag != tar.TypeReg:
			return "", bad("%q in the archive is no regular file", h.Name)
		case isSparse(h):
			return "", bad("%q in the archive is a sparse file: pack it without --sparse", h.Name)
		}
		if err := unpackFile(archive, filepath.Join(dir, name)); err != nil {
			return "", taken(err, h.Name)
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // what pads the archive; digests and limits are of the whole body
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) == 1 && entries[0].IsDir() {
		return filepath.Join(dir, entries[0].Name()), nil
	}
	return dir, nil
}

// isSparse reports whether a file has holes that the archive does not hold.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func unpackFile(r io.Reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return errors.Join(badTar(err), f.Close())
	}
	return f.Close()
}

// badTar is the error of reading an archive.
func badTar(err error) error {
	if isTransport(err) {
		return err
	}
	return bad("the body is no tar archive: %w", err)
}

// taken is the error of writing a member: two of one name are the archive's fault.
func taken(err error, name string) error {
	var p *Problem
	var at *fs.PathError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, syscall.ENAMETOOLONG):
		return bad("%.80q… in the archive has a name that is too long", name)
	case errors.Is(err, fs.ErrExist):
		return bad("%q is in the archive twice", name)
	case errors.As(err, &at) && strings.Contains(at.Err.Error(), "not a directory"):
		return bad("%q is below a file", name)
	}
	return err
}

// badImport is the error of a folder below dir that cannot be taken over.
func badImport(err error, dir string) error {
	for _, known := range []error{interop.ErrNotIndex, interop.ErrBroken, interop.ErrUnsupported, interop.ErrChanged, vectors.ErrFormat, vectors.ErrShape, vectors.ErrValue, vectors.ErrID, fs.ErrNotExist} {
		if errors.Is(err, known) {
			p := bad("the folder cannot be taken over: %w", err)
			p.Message = withoutFolder(p.Message, dir)
			return p
		}
	}
	return badFile(err)
}

// withoutFolder takes out of a message where an archive was unpacked, which is no business
// of the client.
func withoutFolder(message, dir string) string {
	return strings.NewReplacer(dir+string(filepath.Separator), "", "index folder "+dir, "the archive", dir, "the archive").Replace(message)
}
