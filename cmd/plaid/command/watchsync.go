package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// folderSync keeps an index as a folder is.
type folderSync struct {
	app        *app
	path, root string
	largest    int64 // bytes of a file
	parting    encode.Parting
	encoder    *encode.Encoder
	model      *storage.Model
	build      index.BuildOptions

	moved  bool // the folder was elsewhere before
	rooted bool // the index says where the folder is now

	warned []string // paths of .gitignore files that cannot be used

	home  string               // the folder, as payloads name it
	known map[string]fileState // by path; nil: not read yet
}

// fileState is what the index has of a file.
type fileState struct {
	digest string
	size   int64
	time   time.Time // zero: the file is to be read again
	mode   fs.FileMode
}

func (f *fileState) same(as *folder.File) bool {
	return f.size == as.Size && f.mode == as.Mode && !f.time.IsZero() && f.time.Equal(as.Time)
}

// folderReport says what one look at the folder came to.
type folderReport struct {
	Path      string  `json:"path"`
	Files     int     `json:"files"`
	Added     int     `json:"added"`
	Changed   int     `json:"changed"`
	Deleted   int     `json:"deleted"`
	Passages  int     `json:"passages"` // that were encoded
	Tokens    int64   `json:"tokens"`
	Truncated int     `json:"truncated"`
	Passed    int     `json:"passed_over"` // files that are no text, or too large
	Seconds   float64 `json:"seconds"`
	again     bool    // a file may have changed while it was read
}

// settled is how old a file must be for its time to tell that it has not changed since.
const settled = 2 * time.Second

// look compares the folder with the index, and changes the index.
func (s *folderSync) look(ctx context.Context, dirs func(string)) (*folderReport, error) {
	begin := s.app.now()
	files, passed, err := folder.Scan(ctx, s.root, s.largest, dirs)
	if err != nil {
		return nil, err
	}
	if err := s.findHome(); err != nil {
		return nil, err
	}
	if len(s.known) > 0 {
		if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) { // somebody has removed it: all is new
			s.known = nil
		}
	}
	if s.known == nil {
		if err := s.readIndex(ctx); err != nil {
			return nil, err
		}
	}
	for _, path := range passed.Rules {
		if !slices.Contains(s.warned, path) {
			s.warned = append(s.warned, path)
			s.app.warn("%s has more than 1 MiB: its folder is passed over", path)
		}
	}
	r := &folderReport{Path: s.path}
	next := make(map[string]fileState, len(files))
	var changed []*folder.File
	for i := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f := &files[i]
		state, there := s.known[f.Path]
		if !there || !state.same(f) {
			c, err := f.Read(s.largest)
			if errors.Is(err, folder.ErrBinary) || errors.Is(err, folder.ErrLarge) || errors.Is(err, fs.ErrNotExist) {
				r.Passed++
				continue
			} else if errors.Is(err, fs.ErrPermission) {
				passed.Closed = append(passed.Closed, f.Path)
				continue
			} else if err != nil {
				return nil, err
			}
			if there && state.digest != c.Digest {
				r.Changed++
			} else if !there {
				r.Added++
			}
			if !there || state.digest != c.Digest {
				changed = append(changed, f)
			}
			state = fileState{c.Digest, f.Size, f.Time, f.Mode}
			if begin.Sub(f.Time).Abs() < settled { // it may change once more within the same tick of its clock
				state.time, r.again = time.Time{}, true
			}
		}
		next[f.Path] = state
	}
	var gone []string
	for path, state := range s.known {
		if _, stays := next[path]; stays {
			continue
		} else if passed.Hides(path) { // it may be as it was; it is read once it may be
			next[path] = fileState{digest: state.digest}
			continue
		}
		gone = append(gone, path)
	}
	if len(gone) > 0 {
		if _, err := os.Stat(s.root); err != nil { // the whole folder has gone meanwhile, and not its files
			return nil, err
		}
	}
	slices.Sort(gone)
	r.Files, r.Deleted = len(next), len(gone)
	r.Passed += passed.All()
	switch {
	case len(changed)+len(gone) > 0:
		err = s.change(ctx, changed, gone, next, r)
	case s.moved && !s.rooted && len(s.known) > 0:
		err = s.write(ctx, func(*index.Index) error { return nil })
	}
	if err != nil {
		return nil, err
	}
	s.rooted = true
	s.known = next
	r.Seconds = s.app.now().Sub(begin).Seconds()
	return r, nil
}

// findHome finds the whole path of the folder, without links. Where a link leads to another one
// by now, that is another folder.
func (s *folderSync) findHome() error {
	home, err := filepath.EvalSymlinks(s.root)
	if err == nil {
		home, err = filepath.Abs(home)
	}
	if err == nil && home != s.home {
		s.home, s.known, s.rooted = home, nil, false
	}
	return err
}

// elsewhere is true of files of another folder.
var elsewhere = sync.OnceValues(func() (*condition.Expr, error) {
	return condition.Parse("root <> ? AND digest IS NOT NULL AND path IS NOT NULL")
})

// errOtherFolder: an index follows one folder only, since the ids of files are their paths in it.
var errOtherFolder = errors.New("the index follows another folder")

// checkFolder finds out whether the files that the index has are of this folder; whoever has
// said that it was moved has their root changed.
func (s *folderSync) checkFolder(ctx context.Context, ix *index.Index, snap *index.Snapshot) error {
	e, err := elsewhere()
	if err != nil {
		return err
	}
	where, err := e.Bind(s.home)
	if err != nil {
		return err
	}
	docs, err := snap.Select(ctx, where)
	switch {
	case errors.Is(err, condition.ErrUnknownField): // no file is in it, or none that says of what folder it is
		return nil
	case err != nil || docs.IsEmpty():
		return err
	case s.moved && ix != nil:
		home, err := json.Marshal(s.home)
		if err != nil {
			return err
		}
		_, err = ix.UpdatePayload(ctx, where, condition.Fields{"root": home})
		return err
	case s.moved:
		return nil
	}
	d, err := snap.At(docs.Minimum())
	if err != nil {
		return err
	}
	var fields struct{ Root string }
	_ = json.Unmarshal(d.Payload, &fields) // it has been selected by it
	return flags.Usagef("%w: %s follows %s; give each folder an index of its own, or --moved if that folder is now %s", errOtherFolder, s.path, fields.Root, s.home)
}

// write opens the index to change it, if it is of this folder.
func (s *folderSync) write(ctx context.Context, change func(*index.Index) error) error {
	return s.app.open(ctx, s.path, true, func(ix *index.Index) (err error) {
		snap, err := ix.Snapshot()
		if err != nil {
			return err
		}
		err = s.checkFolder(ctx, ix, snap)
		if err = errors.Join(err, snap.Close()); err != nil {
			return err
		}
		return change(ix)
	})
}

// readIndex finds the files that the index has.
func (s *folderSync) readIndex(ctx context.Context) error {
	s.known = map[string]fileState{}
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	known := map[string]fileState{}
	err := s.app.openSnapshot(ctx, s.path, func(snap *index.Snapshot) error {
		if err := s.checkFolder(ctx, nil, snap); err != nil {
			return err
		}
		for ordinal := range snap.State().Docs {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !snap.Live(ordinal) {
				continue
			}
			d, err := snap.At(ordinal)
			if err != nil {
				return err
			}
			var fields struct{ Path, Digest string }
			if json.Unmarshal(d.Payload, &fields) == nil && fields.Digest != "" {
				if of, _ := snap.PassageOf(ordinal); of == fields.Path || d.ID == fields.Path {
					known[fields.Path] = fileState{digest: fields.Digest}
				}
			}
		}
		return nil
	})
	if err == nil {
		s.known = known
	} else {
		s.known = nil
	}
	return err
}

// change encodes what has changed, and stores it with what is gone in one step.
func (s *folderSync) change(ctx context.Context, changed []*folder.File, gone []string, next map[string]fileState, r *folderReport) (err error) {
	if len(changed) == 0 {
		return s.write(ctx, func(ix *index.Index) error {
			_, _, err := ix.Delete(ctx, gone)
			return err
		})
	}
	// What is encoded is lost if the index cannot be written: where another process has it,
	// that is found out first.
	if _, err := os.Stat(s.path); err == nil {
		if err := s.write(ctx, func(*index.Index) error { return nil }); err != nil {
			return err
		}
	}
	spool, encoded, err := encode.Spool(ctx, s.encoder, s.texts(ctx, changed, next), "", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	r.Passages, r.Tokens, r.Truncated = spool.Len(), encoded.Tokens, encoded.Truncated
	if r.Truncated > 0 {
		s.app.warn("%s of %s cut, %s dropped: path and headings leave too little of what the model reads", out.Count(r.Truncated),
			out.Plural(r.Passages, "passage was", "passages were"), out.Plural(encoded.Dropped, "token was", "tokens were"))
	}
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		if spool.Tokens() == 0 {
			return fmt.Errorf("%s: %w", s.root, errNothingToIndex)
		}
		o := s.build
		o.LockTimeout, o.Model = s.app.lockTimeout, s.model
		_, err := index.Build(ctx, s.path, spool, &o)
		return err
	}
	return s.write(ctx, func(ix *index.Index) error {
		_, err := ix.Add(ctx, spool, &index.AddOptions{Replace: true, Delete: gone, Model: s.model, Threads: s.build.Threads, Memory: s.build.Memory})
		return err
	})
}

// errNothingToIndex: the files of a folder have no words.
var errNothingToIndex = errors.New("there is nothing to index yet: no file has a word")

// texts are the passages of files, which are read again one by one: what they have then is
// what is stored, and known.
func (s *folderSync) texts(ctx context.Context, files []*folder.File, next map[string]fileState) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for _, f := range files {
			if err := ctx.Err(); err != nil {
				yield(encode.Text{}, err)
				return
			}
			c, err := f.Read(s.largest)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, folder.ErrBinary) || errors.Is(err, folder.ErrLarge) {
				// It is another one by now: the next look deletes what the index has of it.
				next[f.Path] = fileState{}
				continue
			} else if err != nil {
				yield(encode.Text{}, err)
				return
			}
			c.Root = s.home
			state := next[f.Path]
			state.digest = c.Digest
			next[f.Path] = state
			for t, err := range c.Texts(s.parting) {
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
}
