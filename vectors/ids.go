package vectors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkID refuses what no id may be.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: is empty", ErrID)
	case len(id) > MaxIDBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrID, len(id), MaxIDBytes)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: %q is not UTF-8", ErrID, id[:min(len(id), 80)])
	}
	if strings.HasPrefix(id, "\ufeff") { // lost where it begins a file of text
		return fmt.Errorf("%w: begins with a byte order mark", ErrID)
	}
	for i, r := range id {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: control character %U at byte %d", ErrID, r, i)
		}
	}
	return nil
}

// idSet finds duplicates: id → where it was seen first.
type idSet map[string]int

// add answers with the earlier place of a duplicate.
func (s idSet) add(id string, place int) (first int, duplicate bool) {
	if first, duplicate = s[id]; !duplicate {
		s[id] = place
	}
	return first, duplicate
}

// duplicateID is the fault of an id seen twice; unit is line or document.
func duplicateID(id, unit string, first, second int) error {
	return fmt.Errorf("%w: %q is the id of %s %d and %s %d", ErrID, id, unit, first, unit, second)
}

// readIDs reads the ids of n documents: one a line, a JSON list (.json) or an
// array of integers (.npy). of names what holds the documents.
func readIDs(path string, n int, of string) ([]string, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".npy":
		a, err := OpenNPY(path)
		if err != nil {
			return nil, err
		}
		defer a.Close()
		return idsOfArray(&a.Array, n, of)
	case ".npz", ".safetensors", ".gz":
		return nil, faultf(path, ErrID, "ids are read from text, one a line, from a .json list or from .npy integers")
	}
	f, _, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if strings.EqualFold(filepath.Ext(path), ".json") {
		return parseIDList(f, path, n, of)
	}
	return parseIDs(f, path, n, of)
}

// parseIDs reads one id a line.
func parseIDs(r io.Reader, path string, n int, of string) ([]string, error) {
	lines := newLineReader(r, MaxIDBytes+2)
	var ids []string
	seen := idSet{}
	for {
		text, _, err := lines.line()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, errLongLine) {
			err = fmt.Errorf("%w: more than %d bytes", ErrID, MaxIDBytes)
		} else if err == nil {
			err = checkID(string(text))
		}
		if err != nil {
			return nil, inFile(err, path, -1, lines.no, "")
		}
		id := string(text)
		if first, twice := seen.add(id, lines.no); twice {
			return nil, inFile(duplicateID(id, "line", first, lines.no), path, -1, lines.no, "")
		}
		if ids = append(ids, id); len(ids) > n {
			return nil, inFile(fmt.Errorf("%w: one id more than the %d documents of %s", ErrID, n, of), path, -1, lines.no, "")
		}
	}
	return ids, checkIDCount(path, len(ids), n, of)
}

// parseIDList reads a JSON list of strings or integers.
func parseIDList(r io.Reader, path string, n int, of string) ([]string, error) {
	var ids []string
	seen := idSet{}
	err := jsonList(r, func(i int, raw []byte) error {
		id, err := jsonID(raw)
		if err != nil {
			return err
		}
		if first, twice := seen.add(id, i); twice {
			return duplicateID(id, "document", first, i)
		}
		ids = append(ids, id)
		return nil
	})
	if err != nil {
		return nil, inFile(err, path, -1, -1, "")
	}
	return ids, checkIDCount(path, len(ids), n, of)
}

// idsOfArray turns integers into ids.
func idsOfArray(a *Array, n int, of string) ([]string, error) {
	if a.kind.isFloat() || len(a.Shape) != 1 {
		return nil, faultf(a.path, ErrID, "ids are %s %s, want one row of integers", a.Dtype, shapeString(a.Shape))
	}
	if err := checkIDCount(a.path, a.n, n, of); err != nil {
		return nil, err
	}
	numbers, err := intsOf(a)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(numbers))
	seen := idSet{}
	for i, v := range numbers {
		ids[i] = strconv.FormatInt(v, 10)
		if first, twice := seen.add(ids[i], i); twice {
			return nil, inFile(duplicateID(ids[i], "document", first, i), a.path, i, -1, "")
		}
	}
	return ids, nil
}

func checkIDCount(path string, have, want int, of string) error {
	if have != want {
		return faultf(path, ErrID, "%d ids for the %d documents of %s", have, want, of)
	}
	return nil
}

// jsonList calls each with every element of a JSON list; errors are placed at
// the element, as a document.
func jsonList(r io.Reader, each func(i int, raw []byte) error) error {
	dec := json.NewDecoder(r)
	dec.UseNumber()
	fault := func(err error) error {
		var pe *fs.PathError
		if errors.As(err, &pe) { // reading failed
			return pe.Err
		}
		return fmt.Errorf("%w: after byte %d: %v", ErrFormat, dec.InputOffset(), err)
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
		if err := each(i, raw); err != nil {
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
