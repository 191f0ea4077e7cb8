package vectors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/files"
)

// CheckID returns [ErrID] for an id that is empty, has more than [MaxIDBytes], is not UTF-8, begins with
// a byte order mark, or has a control character.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: is empty", ErrID)
	case len(id) > MaxIDBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrID, len(id), MaxIDBytes)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: %q is not UTF-8", ErrID, id[:min(len(id), 80)])
	}
	if strings.HasPrefix(id, "\ufeff") { // readers of text would skip it at the beginning of a file
		return fmt.Errorf("%w: begins with a byte order mark", ErrID)
	}
	for i, r := range id {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: control character %U at byte %d", ErrID, r, i)
		}
	}
	return nil
}

// idSet finds duplicate ids: it maps an id to the document or line where it was first seen.
type idSet map[string]int

// add adds the id of a document or line. If the id was seen before, it returns where.
func (s idSet) add(id string, position int) (first int, duplicate bool) {
	if first, duplicate = s[id]; !duplicate {
		s[id] = position
	}
	return first, duplicate
}

// duplicateID returns the error of an id seen twice. unit is line, row or document.
func duplicateID(id, unit string, first, second int) error {
	return fmt.Errorf("%w: %.80q is the id of %s %d and %s %d", ErrID, id, unit, first, unit, second)
}

// wantedIDs is the requirements for a list of ids.
type wantedIDs struct {
	n    int    // number of documents; −1 means any
	file string // the file of the documents
	// forLookup means that the ids are for look-ups: they may repeat, and text may have blank lines.
	forLookup bool
}

// ReadIDs reads distinct ids of documents: text with one per line, or a .json list, which may be
// compressed by gzip, zstd or xz, or a .npy of integers. Text may come through a pipe; ctx ends the wait
// for it. Errors are [*FileError] and wrap [ErrID], [ErrFormat], [ErrChanged], or an error of ctx or the
// operating system.
func ReadIDs(ctx context.Context, path string) ([]string, error) {
	return readIDList(ctx, path, wantedIDs{n: -1})
}

// ReadIDList reads ids to look up. It is [ReadIDs], except that ids may repeat, and that blank lines of
// text are skipped. A file without ids is an empty list, which is not nil.
func ReadIDList(ctx context.Context, path string) ([]string, error) {
	return readIDList(ctx, path, wantedIDs{n: -1, forLookup: true})
}

// readIDList reads ids from a file of any form.
func readIDList(ctx context.Context, path string, want wantedIDs) ([]string, error) {
	in := new(inputs)
	ids, err := in.readIDs(ctx, path, want)
	if err == nil {
		err = in.checkUnchanged()
	}
	if err != nil {
		return nil, in.explainByChange(err)
	}
	return ids, nil
}

// readIDs is readIDList for one of several files that are watched for changes.
func (in *inputs) readIDs(ctx context.Context, path string, want wantedIDs) ([]string, error) {
	switch files.Suffix(path) {
	case ".npy":
		a, err := in.openNPY(path)
		if err != nil {
			return nil, err
		}
		defer a.Close()
		return idsOfArray(a, want)
	case ".npz", ".safetensors", ".jsonl", ".ndjson": // as text, each line of JSON would be an id
		return nil, faultf(path, ErrID, "ids are read from text, one a line, from a .json list or from .npy integers")
	case ".json":
		f, _, err := in.openFile(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		b, err := decompress(f, path)
		if err != nil {
			return nil, err
		}
		return parseIDList(b, path, want)
	}
	f, err := in.openStream(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := decompress(f, path)
	if err != nil {
		return nil, err
	}
	return parseIDs(b, path, want)
}

// parseIDs parses text with one id per line.
func parseIDs(r io.Reader, path string, want wantedIDs) ([]string, error) {
	lines := newLineReader(r, MaxIDBytes+2)
	ids := []string{} // not nil if empty
	seen := idSet{}
	for {
		text, _, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && want.forLookup && len(text) == 0 {
			continue
		}
		if errors.Is(err, files.ErrLongLine) {
			err = fmt.Errorf("%w: more than %d bytes", ErrID, MaxIDBytes)
		} else if err == nil {
			err = CheckID(string(text))
		}
		if err != nil {
			return nil, inFile(err, path, -1, lines.Number, "")
		}
		id := string(text)
		if !want.forLookup {
			if first, twice := seen.add(id, lines.Number); twice {
				return nil, inFile(duplicateID(id, "line", first, lines.Number), path, -1, lines.Number, "")
			}
		}
		if ids = append(ids, id); want.n >= 0 && len(ids) > want.n {
			err := fmt.Errorf("%w: one id more than the %d of %s", ErrID, want.n, want.file)
			return nil, inFile(err, path, -1, lines.Number, "")
		}
	}
	return ids, want.checkCount(path, len(ids))
}

// parseIDList parses a JSON list of strings or integers.
func parseIDList(r io.Reader, path string, want wantedIDs) ([]string, error) {
	ids := []string{}
	seen := idSet{}
	err := jsonList(r, func(i int, raw []byte) error {
		id, err := jsonID(raw)
		if err != nil {
			return err
		}
		if first, twice := seen.add(id, i); twice && !want.forLookup {
			return duplicateID(id, "row", first, i)
		}
		ids = append(ids, id)
		return nil
	})
	if err != nil {
		return nil, inFile(err, path, -1, -1, "")
	}
	return ids, want.checkCount(path, len(ids))
}

// idsOfArray converts an array of integers to ids.
func idsOfArray(a *Array, want wantedIDs) ([]string, error) {
	if a.kind.isFloat() || len(a.Shape) != 1 {
		return nil, faultf(a.path, ErrID, "ids are %s %s, want one row of integers: .astype(int) converts numbers",
			a.typeName(), shapeString(a.Shape))
	}
	if err := want.checkCount(a.path, a.n); err != nil {
		return nil, err
	}
	numbers, err := readInts(a)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(numbers))
	seen := idSet{}
	for i, v := range numbers {
		ids[i] = strconv.FormatInt(v, 10)
		if first, twice := seen.add(ids[i], i); twice && !want.forLookup {
			return nil, inFile(duplicateID(ids[i], "row", first, i), a.path, i, -1, "")
		}
	}
	return ids, nil
}

// checkCount checks the number of ids.
func (w wantedIDs) checkCount(path string, have int) error {
	if w.n >= 0 && have != w.n {
		return NewFileError(path, &subError{ErrID, fmt.Sprintf("%d ids, and %s needs %d", have, w.file, w.n)})
	}
	return nil
}

// jsonList calls visit with every element of a JSON list. Its errors name the element as a document.
func jsonList(r io.Reader, visit func(i int, raw []byte) error) error {
	b, err := files.SkipByteOrderMark(r)
	if err != nil {
		return compressedError(err)
	}
	dec := json.NewDecoder(b)
	dec.UseNumber()
	fault := func(err error) error {
		var pe *fs.PathError
		if errors.As(err, &pe) { // reading failed
			return pe.Err
		}
		return fmt.Errorf("%w: after byte %d: %w", ErrFormat, dec.InputOffset(), err)
	}
	if t, err := dec.Token(); err != nil {
		return fault(err)
	} else if t != json.Delim('[') {
		return fmt.Errorf("%w: want a JSON list", ErrFormat)
	}
	var raw json.RawMessage
	for i := 0; dec.More(); i++ {
		if err := dec.Decode(&raw); err != nil {
			return inFile(fault(err), "", i, -1, "")
		}
		if err := visit(i, raw); err != nil {
			return inFile(err, "", i, -1, "")
		}
	}
	if _, err := dec.Token(); err != nil {
		return fault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: text after the JSON list", ErrFormat)
	}
	return nil
}
