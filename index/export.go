package index

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"unicode/utf8"

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
// whose it is. dir must not exist or be empty; it appears when everything is
// written.
func (s *Snapshot) Export(ctx context.Context, dir string, progress func(Progress)) (err error) {
	defer storage.Guard(s.Path(), &err)()
	tmp, err := newFolder(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(tmp)
		}
	}()
	var lengths []int32
	ids, err := s.liveIDs(ctx, &lengths)
	if err != nil {
		return err
	}
	if err := s.exportVectors(ctx, tmp, lengths, progress); err != nil {
		return err
	}
	if err := writeIDs(tmp, ids); err != nil {
		return err
	}
	if err := s.exportPayload(ctx, tmp); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // empty, if it is there
		return err
	}
	return os.Rename(tmp, dir)
}

// newFolder makes a folder beside dir that may be renamed to it.
func newFolder(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	case len(entries) > 0:
		return "", fmt.Errorf("%s: %w and is not empty", dir, fs.ErrExist)
	}
	for range 100 { // not MkdirTemp, which keeps other users out
		tmp := fmt.Sprintf("%s.tmp-%s", filepath.Clean(dir), strconv.FormatUint(rand.Uint64(), 36))
		if err = os.Mkdir(tmp, 0o777); !errors.Is(err, fs.ErrExist) {
			return tmp, err
		}
	}
	return "", err
}

func (s *Snapshot) exportVectors(ctx context.Context, dir string, lengths []int32, progress func(Progress)) error {
	total := 0
	wide := make([]int64, len(lengths))
	for i, n := range lengths {
		total += int(n)
		wide[i] = int64(n)
	}
	w, err := vectors.CreateNPY(filepath.Join(dir, exportLengths), "<i4", len(wide))
	if err != nil {
		return err
	}
	if err := errors.Join(w.Ints(wide), w.Close()); err != nil {
		return err
	}
	w, err = vectors.CreateNPY(filepath.Join(dir, exportVectors), "<f4", total, s.Dim())
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
	return errors.Join(err, w.Close())
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

func writeIDs(dir string, ids []string) error {
	return writeLines(filepath.Join(dir, exportIDs), func(line func([]byte) error) error {
		for _, id := range ids {
			if err := line([]byte(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

func writeLines(path string, produce func(line func([]byte) error) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	err = produce(func(b []byte) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
	return errors.Join(err, w.Flush())
}

// exportPayload writes the payloads, a line each; there is no file if there is
// no payload.
func (s *Snapshot) exportPayload(ctx context.Context, dir string) error {
	path := filepath.Join(dir, exportPayload)
	n := 0
	err := writeLines(path, func(line func([]byte) error) error {
		return s.eachLive(ctx, func(ordinal uint32) error {
			p, err := s.Payload(ordinal)
			if err != nil || p == nil {
				return err
			}
			n++
			if p, err = payloadLine(s.ID(ordinal), p); err != nil {
				return fmt.Errorf("document %d, %q: %w", ordinal, s.ID(ordinal), err)
			}
			return line(p)
		}, nil)
	})
	if err != nil || n > 0 {
		return err
	}
	return os.Remove(path)
}

// payloadLine is a payload as a line of JSON that finds its document again. An
// object that names the document, as one from a file of payloads does, stays
// as it is; another gets a field _id; what is no object, or has the _id of
// something else, becomes the field payload of one.
func payloadLine(id string, p []byte) ([]byte, error) {
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
