package vectors

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
)

// Files names the files of a collection. Only Vectors is required.
type Files struct {
	// Vectors is a file .npy, .npz, .safetensors or .jsonl (.ndjson). An array is [tokens, dim] with
	// lengths, or [docs, rows, dim], padded, optionally with lengths or a mask. In .npz and .safetensors
	// it is named vectors, docs, embeddings or data, or is the only array of floats; the file may also
	// have lengths (doclens), a mask and integer ids. If it has none of these names, and several arrays
	// [tokens, dim], each array is a document, and its name is the id. They are ordered by the numbers
	// in their names ([SortNumbered]), or, without numbers, in the order in which .npz saved them.
	Vectors string
	// Format is the format of Vectors, "npy", "npz", "safetensors" or "jsonl". "" means by its suffix.
	Format string
	// Queries means that the documents are queries: errors call them queries, and an array
	// [tokens, dim] without lengths is one query, unless it is too long for one.
	Queries bool
	// QueryLength, if not nil, returns the maximum number of tokens of a query of the model. It is
	// called for an array that may be one query. nil, or a result of 0, means [QueryLength].
	QueryLength func() int
	// Lengths is a file of the number of tokens of each document: .npy, a .json list, or text with one
	// number per line.
	Lengths string
	// Mask is a .npy [docs, rows] of integers or booleans, in which 0 means padding.
	Mask string
	// IDs is a file of ids in the order of the documents: text with one id per line, a .json list, or a
	// .npy of integers. Without any ids, the id of a document is its row number, from 0. It is [ErrID]
	// if the documents have no order: arrays without numbers in their names, in .safetensors.
	IDs string
	// Payload is a file of JSON lines. An object belongs to the document of its _id or id. If the
	// documents have no ids, objects are in the order of the documents. A file whose ids match no
	// document is [ErrID].
	Payload string
	// Notice, if not nil, is called with a text about objects without document, and documents without
	// object.
	Notice func(text string)
}

// Open opens a collection. Lengths, Mask and IDs replace those in the file of vectors. ctx ends the
// reading of lines of JSON, ids, lengths and payloads. Errors are [*FileError] and wrap [ErrFormat],
// [ErrShape], [ErrID] or an error of ctx or the operating system. Values are checked only when documents
// are read ([Source].Docs).
func Open(ctx context.Context, files Files) (Source, error) {
	in := &inputs{queries: files.Queries}
	s, err := in.openSource(ctx, files)
	if err != nil {
		return nil, in.explainByChange(err)
	}
	return s, nil
}

// openSource opens a collection in any format.
func (in *inputs) openSource(ctx context.Context, files Files) (Source, error) {
	if f, ok := registered.Find(files.Vectors); ok && files.Format == "" {
		return in.openRegistered(ctx, f, files)
	}
	format, err := in.checkSuffix(files.Vectors, files.Format)
	if err != nil {
		return nil, err
	}
	if format == "jsonl" {
		return in.openJSONL(ctx, files)
	}
	return in.openDense(ctx, files, format)
}

// openJSONL opens a collection in lines of JSON.
func (in *inputs) openJSONL(ctx context.Context, files Files) (_ Source, err error) {
	if files.Lengths != "" || files.Mask != "" {
		return nil, faultf(files.Vectors, ErrShape,
			"lines of JSON have lengths of their own: lengths and mask are for arrays")
	}
	f, size, err := in.openFile(files.Vectors)
	if err != nil {
		return nil, err
	}
	s, err := newJSONL(ctx, f, size, files.Vectors, files.IDs == "")
	if err != nil {
		f.Close()
		return nil, err
	}
	s.files, s.closers = in, []io.Closer{f}
	if err := s.openIDsAndPayloads(ctx, files, s.Len()); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// source is the common fields and methods of sources that read files.
type source struct {
	path    string
	ids     []string // nil means row numbers
	payload *payloads
	files   *inputs
	closers []io.Closer
}

func (s *source) name() string { return s.path }

// Numbered reports whether ids are row numbers.
func (s *source) Numbered() bool { return s.ids == nil }

func (s *source) ID(i int) string {
	if s.ids == nil {
		return strconv.Itoa(i)
	}
	return s.ids[i]
}

func (s *source) Close() error {
	err := closeAll(s.closers)
	s.closers = nil
	return err
}

// openIDsAndPayloads opens the separate files of ids and payloads of n documents.
func (s *source) openIDsAndPayloads(ctx context.Context, files Files, n int) (err error) {
	if files.IDs != "" {
		if s.ids, err = s.files.readIDs(ctx, files.IDs, wantedIDs{n: n, file: s.path}); err != nil {
			return err
		}
	}
	if files.Payload == "" {
		return nil
	}
	if s.payload, err = s.files.openPayloads(ctx, files.Payload, n, s.ids, files.Notice); err == nil {
		s.closers = append(s.closers, s.payload)
	}
	return err
}

// arrays are the arrays of a collection. An absent one is nil.
type arrays struct {
	vec, lengths, mask, ids *Array
	closers                 []io.Closer // of all files and arrays
}

// openDense opens a collection in arrays.
func (in *inputs) openDense(ctx context.Context, files Files, format string) (_ Source, err error) {
	var p arrays
	defer func() {
		if err != nil {
			closeAll(p.closers)
		}
	}()
	// The array of vectors, or one array per document.
	if format == "npy" {
		if p.vec, err = p.openNPY(in, files.Vectors); err != nil {
			return nil, err
		}
	} else {
		c, err := p.openContainer(in, files.Vectors, format)
		if err != nil {
			return nil, err
		}
		many, err := p.openDocuments(c, files)
		if err != nil {
			return nil, err
		}
		if many != nil {
			many.source = source{path: files.Vectors, ids: many.ids, files: in, closers: p.closers}
			err = many.openIDsAndPayloads(ctx, files, len(many.arrays))
			p.closers = many.closers
			return many, err
		}
		if err := p.openByName(c, files); err != nil {
			return nil, err
		}
	}
	// The mask and the lengths.
	if files.Mask != "" {
		if ext := filepath.Ext(files.Mask); !strings.EqualFold(ext, ".npy") {
			return nil, faultf(files.Mask, ErrFormat, "a mask is read from .npy, not from %q", ext)
		}
		if p.mask, err = p.openNPY(in, files.Mask); err != nil {
			return nil, err
		}
	}
	lengths, lengthsPath, err := p.readLengths(ctx, in, files)
	if err != nil {
		return nil, err
	}
	// The documents, with ids and payloads.
	s, err := newDense(p.vec, p.mask, lengths, lengthsPath)
	if err != nil {
		return nil, err
	}
	s.source = source{path: p.vec.path, files: in, closers: p.closers}
	if p.ids != nil {
		if s.ids, err = idsOfArray(p.ids, wantedIDs{n: s.n, file: p.vec.path}); err != nil {
			return nil, err
		}
	}
	err = s.openIDsAndPayloads(ctx, files, s.n)
	p.closers = s.closers
	return s, err
}

// openNPY opens an array in a separate file.
func (p *arrays) openNPY(in *inputs, path string) (*Array, error) {
	a, err := in.openNPY(path)
	if err == nil {
		p.closers = append(p.closers, a)
	}
	return a, err
}

// readLengths reads the number of rows of each document, and returns the path of their file. lengths is
// nil if neither a file nor an array has them.
func (p *arrays) readLengths(ctx context.Context, in *inputs, files Files) (lengths []int64, path string, err error) {
	switch {
	case files.Lengths != "":
		path = files.Lengths
		lengths, err = in.readLengths(ctx, path)
	case p.lengths != nil:
		path = p.lengths.path
		lengths, err = readInts(p.lengths)
	case files.Queries && p.mask == nil && len(p.vec.Shape) == 2:
		return oneQuery(p.vec, files.QueryLength)
	default:
		return nil, "", nil
	}
	return lengths, path, err
}

// QueryLength is the maximum number of tokens of a query in most models. An array [tokens, dim] with
// more tokens is unlikely to be one query; [1, tokens, dim] always is.
const QueryLength = 32

// oneQuery returns the length of an array [tokens, dim] that is one query, or an error if it is too long.
// maxTokens, if not nil, returns the maximum for the model, or 0 if it is unknown.
func oneQuery(a *Array, maxTokens func() int) (lengths []int64, path string, err error) {
	limit, reason := QueryLength, fmt.Sprintf("more than %d are not taken for one query", QueryLength)
	if maxTokens != nil {
		if n := maxTokens(); n > 0 {
			limit, reason = n, fmt.Sprintf("queries of this model have at most %d", n)
		}
	}
	rows := a.Shape[0]
	if rows > limit {
		return nil, "", faultf(a.path, ErrNoLengths, "how many of the %d tokens each query has "+
			"(%s; an array [1, %d, dim] is one query)", rows, reason, rows)
	}
	return []int64{int64(rows)}, a.path, nil
}

// container is a file of named arrays.
type container interface {
	Names() []string
	Array(name string) (*Array, error)
	Close() error
}

// openContainer opens a file of named arrays.
func (p *arrays) openContainer(in *inputs, path, format string) (c container, err error) {
	if format == "npz" {
		c, err = in.openNPZ(path)
	} else {
		c, err = in.openSafetensors(path)
	}
	if err == nil {
		p.closers = append(p.closers, c)
	}
	return c, err
}

var (
	vectorNames = []string{"vectors", "docs", "embeddings", "data"}
	lengthNames = []string{"lengths", "doclens"}
	maskNames   = []string{"mask"}
	idNames     = []string{"ids", "doc_ids"}
)

// openByName opens the arrays of a container by their names, except those that other files replace.
func (p *arrays) openByName(c container, files Files) (err error) {
	if p.vec, err = p.openNamed(c, files.Vectors, vectorNames); err != nil {
		return err
	}
	if p.vec == nil {
		if p.vec, err = p.openOnlyFloats(c, files.Vectors); err != nil {
			return err
		}
	}
	if files.Lengths == "" && files.Mask == "" {
		if p.lengths, err = p.openNamed(c, files.Vectors, lengthNames); err != nil {
			return err
		}
		if p.mask, err = p.openNamed(c, files.Vectors, maskNames); err != nil {
			return err
		}
	}
	if files.IDs == "" {
		if p.ids, err = p.openNamed(c, files.Vectors, idNames); err != nil {
			return fmt.Errorf("%w; give ids that are not integers as a file of text", err)
		}
	}
	return nil
}

// openNamed opens the array that has one of the names. It returns nil if none has; several are an error.
func (p *arrays) openNamed(c container, path string, names []string) (*Array, error) {
	var found []string
	for _, name := range c.Names() {
		if slices.Contains(names, name) {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		a, err := c.Array(found[0])
		if err != nil {
			return nil, err
		}
		p.closers = append(p.closers, a)
		return a, nil
	}
	return nil, faultf(path, ErrShape, "holds arrays named %s: want one of them", strings.Join(found, " and "))
}

// openOnlyFloats opens the only array of floats of rank 2 or 3.
func (p *arrays) openOnlyFloats(c container, path string) (*Array, error) {
	var only *Array
	var fault error // of an array that cannot be read and may be the one
	for _, name := range c.Names() {
		if slices.Contains(slices.Concat(lengthNames, maskNames, idNames), name) {
			continue
		}
		a, err := c.Array(name)
		if err != nil {
			fault = err
			continue
		}
		if rank := len(a.Shape); !a.kind.isFloat() || rank < 2 || rank > 3 {
			a.Close()
			continue
		}
		p.closers = append(p.closers, a)
		if only != nil {
			return nil, faultf(path, ErrShape, "holds several arrays of floats (%s, %s): name one of them vectors",
				only.path, a.path)
		}
		only = a
	}
	if only == nil && fault != nil {
		return nil, fault
	}
	if only == nil {
		names := c.Names()
		return nil, faultf(path, ErrShape,
			"holds no array of floats [tokens, dim] or [docs, rows, dim] among its %d arrays (%s)",
			len(names), strings.Join(names[:min(len(names), 10)], ", "))
	}
	return only, nil
}

// Formats returns the names of the formats of vectors.
func Formats() []string { return []string{"npy", "npz", "safetensors", "jsonl"} }

// formats maps suffixes to formats.
var formats = map[string]string{
	".npy": "npy", ".npz": "npz", ".safetensors": "safetensors", ".jsonl": "jsonl", ".ndjson": "jsonl",
}

// checkSuffix returns the format of a file: the given one, or, if that is "", the one of its suffix. The
// first bytes of the file must not contradict it.
func (in *inputs) checkSuffix(path, format string) (string, error) {
	if path == "" {
		return "", faultf("", ErrFormat, "no file of vectors is named")
	}
	if err := checkNotCompressed(path); err != nil {
		return "", err
	}
	// The format by the suffix.
	ext := strings.ToLower(filepath.Ext(path))
	switch {
	case format == "":
		if format = formats[ext]; format == "" && slices.Contains(extraSuffixes, ext) {
			return "", NewFileError(path, fmt.Errorf("%w: %s is read by the program that has more formats: "+
				"vectors/formats/cmd/plaid in plaid's repository (docs/formats.md)", ErrSuffix, ext))
		} else if info, err := os.Stat(path); format == "" && err == nil && info.IsDir() {
			return "", NewFileError(path, fmt.Errorf("%w: it is a folder: name the file of vectors in it", ErrSuffix))
		} else if format == "" {
			return "", NewFileError(path, fmt.Errorf("%w: %s", ErrSuffix, notVectors(ext)))
		}
	case !slices.Contains(Formats(), format):
		return "", faultf(path, ErrFormat, "format %q is not known: there is %s", format, strings.Join(Formats(), ", "))
	}
	// The format by the first bytes.
	f, size, err := in.openFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if size == 0 && format != "jsonl" {
		return "", NewFileError(path, errEmptyFile)
	}
	content, err := detectFormat(f, size)
	if err != nil {
		return "", NewFileError(path, err)
	}
	// Unknown content of a format without magic bytes is left to the reader of the format, whose error
	// is more precise.
	hasMagic := (format == "npy" || format == "npz") && size >= 8
	if content != format && (content != "" || hasMagic) {
		found := "unknown content"
		if content != "" {
			found = content
		}
		if formats[ext] != format {
			return "", faultf(path, ErrFormat, "is not what was said: %s, not %s", found, format)
		}
		return "", faultf(path, ErrFormat, "is not what its suffix says: %s in a %s file", found, ext)
	}
	return format, nil
}

// notVectors returns the message for a file with a suffix that is not read.
func notVectors(ext string) string {
	switch want := "vectors are read from " + knownSuffixes(); ext {
	case "":
		return want + ": the name has none"
	case ".csv", ".tsv", ".txt", ".md", ".html", ".ipynb":
		return fmt.Sprintf("%s holds texts, no vectors: %s", ext, want)
	case ".pt", ".pth", ".bin", ".pkl", ".pickle", ".h5", ".hdf5", ".mat":
		return fmt.Sprintf(`%s is not read as vectors: %s; numpy.save("vectors.npy", array) writes one`, ext, want)
	default:
		return fmt.Sprintf("%s holds no vectors: %s", ext, want)
	}
}

// detectFormat recognises content by its first bytes. "" means unknown.
func detectFormat(f *os.File, size int64) (string, error) {
	head := make([]byte, 16)
	n, err := readAtMost(f, head, size)
	if err != nil {
		return "", err
	}
	head = head[:n]
	for _, known := range []struct{ magic, content string }{
		{npyMagic, "npy"},
		{"PK\x03\x04", "npz"},
		{"PK\x05\x06", "npz"},
		{"PAR1", "parquet"},
		{"\x80\x02", "pickle"},
		{"\x80\x04", "pickle"},
		{"\x89HDF", "HDF5"},
	} {
		if strings.HasPrefix(string(head), known.magic) {
			return known.content, nil
		}
	}
	if packing := files.PackingName(head); packing != "" {
		return packing, nil
	}
	if n >= 9 && head[8] == '{' {
		if length := binary.LittleEndian.Uint64(head); length <= uint64(size) {
			return "safetensors", nil
		}
	}
	text := strings.TrimLeft(strings.TrimPrefix(string(head), "\ufeff"), " \t\r\n")
	if strings.HasPrefix(text, "{") {
		return "jsonl", nil
	}
	return "", nil
}
