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

// folderSync keeps an index up to date with a folder. One sync reads the folder, compares it with
// the index, and changes the index.
type folderSync struct {
	app        *app
	path, root string
	// largest is the size in bytes of the largest file that is read.
	maxFileBytes int64
	splitting    encode.Splitting
	encoder      *encode.Encoder
	model        *storage.Model
	build        index.BuildOptions

	// moved reports that the folder was elsewhere before.
	moved bool
	// rooted reports that the index says where the folder is now.
	rootStored bool
	// allowEmpty lets the next sync delete documents however many files have vanished.
	allowEmpty bool

	// device is folder.Device, except in tests.
	device func(path string) (string, error)
	// mounts maps the folders at which a file system begins to their devices.
	mounts map[string]string

	// sinceRead is called by tests between reading and writing, or nil otherwise.
	afterRead func()

	// warned are the paths of .gitignore files that cannot be used and were warned of.
	warned []string

	// home is the full path of the folder, as payloads name it.
	home string
	// known are the files that the index has, by their paths. Nil means that they were not read
	// yet.
	known map[string]fileState
	// indexed is the state of the index that known was read from.
	indexed indexState
	// otherCuts counts how often another process had split files differently.
	otherCuts int
}

// fileState describes a file as the index has it.
type fileState struct {
	// digest is the digest of the content. "" means that the index does not have all of it.
	digest string
	// device is the device of the file. "" means that it is unknown.
	device string
	cut    string
	size   int64
	// time is the time of the file; zero means that the file must be read again.
	time time.Time
	mode fs.FileMode
}

// isUnchanged reports whether a file has the size, the mode and the time of the state.
func (f *fileState) isUnchanged(file *folder.File) bool {
	return f.size == file.Size && f.mode == file.Mode && !f.time.IsZero() && f.time.Equal(file.Time)
}

// folderReport reports on one sync of the folder.
type folderReport struct {
	Path  string `json:"path"`
	Files int    `json:"files"`
	Added int    `json:"added"`
	// Changed counts the files that were encoded again.
	Changed int `json:"changed"`
	Deleted int `json:"deleted"`
	// Docs counts the documents that were encoded, and Passages the passages that some of them are
	// stored as.
	Docs      int   `json:"docs"`
	Passages  int   `json:"passages"`
	Tokens    int64 `json:"tokens"`
	Truncated int   `json:"truncated"`
	// Passed counts files that are not texts, or too large; PassedFiles names the first of them.
	Passed      int                  `json:"passed_over"`
	PassedFiles []folder.SkippedFile `json:"passed_over_files,omitempty"`
	// Kept counts files that have vanished and whose documents stay.
	Kept    int     `json:"kept"`
	Seconds float64 `json:"seconds"`
	// keptReason says why they stay.
	keptReason string
	// syncAgain reports that a file may have changed while it was read.
	syncAgain bool
	// changedByOthers reports that another process has changed the index during the sync.
	changedByOthers bool
}

// settledAge is the age at which the time of a file proves that the file has not changed since it
// was read.
const settledAge = 2 * time.Second

// errMounted reports that a file system was mounted or unmounted during a sync, so that the devices
// of files are uncertain.
var errMounted = errors.New("a file system was mounted or unmounted while the folder was looked at")

// maxSyncs is the maximum number of syncs of a folder that changes during a sync.
const maxSyncs = 3

// syncUntilStable repeats a sync if others have changed the index, or if mounts have changed,
// during the sync. The report covers all syncs.
func (s *folderSync) syncUntilStable(ctx context.Context) (*folderReport, error) {
	var total folderReport
	for n := 1; ; n++ {
		r, err := s.syncOnce(ctx, nil)
		if errors.Is(err, errMounted) && n < maxSyncs {
			continue
		} else if err != nil {
			return nil, err
		}
		r.addEarlier(&total)
		if total = *r; !r.changedByOthers || n == maxSyncs {
			return r, nil
		}
	}
}

// addEarlier adds the changes of an earlier sync.
func (r *folderReport) addEarlier(earlier *folderReport) {
	r.Added += earlier.Added
	r.Changed += earlier.Changed
	r.Deleted += earlier.Deleted
	r.Docs += earlier.Docs
	r.Passages += earlier.Passages
	r.Tokens += earlier.Tokens
	r.Truncated += earlier.Truncated
	r.Seconds += earlier.Seconds
}

// syncOnce compares the folder with the index, and changes the index. dirs, if not nil, is called
// with each folder before it is read.
func (s *folderSync) syncOnce(ctx context.Context, dirs func(string)) (*folderReport, error) {
	begin := s.app.now()
	if err := s.findHome(); err != nil {
		return nil, err
	}
	// Read the folder, and the index if others have changed it.
	devices := s.newDevices()
	files, skipped, err := folder.Scan(ctx, s.home, s.maxFileBytes, func(dir string) {
		if dirs != nil {
			dirs(dir)
		}
		devices.recordDevice(dir)
	})
	if err == nil {
		err = devices.err
	}
	if err == nil {
		err = s.followIndex(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, path := range skipped.Rules {
		if !slices.Contains(s.warned, path) {
			s.warned = append(s.warned, path)
			s.app.printWarning("%s has more than 1 MiB: its folder is skipped", path)
		}
	}
	// Compare them file by file.
	r := &folderReport{Path: s.path}
	c := comparison{
		sync:    s,
		begin:   begin,
		cut:     folder.Cut(s.splitting),
		devices: devices,
		skipped: &skipped,
		report:  r,
		next:    make(map[string]fileState, len(files)),
		arrived: map[string]int{},
	}
	for i := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.compareFile(&files[i]); err != nil {
			return nil, err
		}
	}
	// Decide which of the missing files were deleted.
	if err := devices.checkUnchanged(); err != nil {
		return nil, err
	}
	missing, err := c.findMissing()
	if err != nil {
		return nil, err
	}
	r.Files, r.Deleted, r.Kept, r.keptReason = len(c.next), len(c.changes.deleted), len(missing.keptFiles),
		missing.keptReason()
	r.Passed += skipped.Count()
	r.PassedFiles = skipped.Files
	// Change the index. With --moved, it is opened even if no file has changed, to change the root of
	// its files.
	if s.afterRead != nil {
		s.afterRead()
	}
	switch {
	case !c.changes.isEmpty():
		err = s.applyChanges(ctx, &c.changes, c.next, r)
	case s.moved && !s.rootStored && len(s.known) > 0:
		err = s.changeIndex(ctx, func(*index.Index) error { return nil })
	}
	if err != nil {
		return nil, err
	}
	// Remember the state for the next sync.
	s.rootStored, s.allowEmpty = true, false
	s.known, s.mounts = c.next, devices.mountPoints(missing)
	r.changedByOthers = s.indexed.changedByOthers
	r.syncAgain = r.syncAgain || r.changedByOthers
	r.Seconds = s.app.now().Sub(begin).Seconds()
	return r, nil
}

// findHome finds the full path of the folder, without links. If a link now leads elsewhere, that is
// another folder, and the files of the index are read again.
func (s *folderSync) findHome() error {
	home, err := filepath.EvalSymlinks(s.root)
	if err == nil {
		home, err = filepath.Abs(home)
	}
	if err == nil && home != s.home {
		s.home, s.known, s.rootStored = home, nil, false
	}
	return err
}

// otherFolderCondition selects the files of other folders.
var otherFolderCondition = sync.OnceValues(func() (*condition.Expr, error) {
	return condition.Parse("root <> ? AND digest IS NOT NULL AND path IS NOT NULL")
})

// errOtherFolder reports that the index belongs to another folder. An index follows only one, since
// the ids of files are their paths in it.
var errOtherFolder = errors.New("the index follows another folder")

// checkFolder returns an error if the index has files of another folder. With --moved, it changes
// their root to this folder instead, if the index is open for writing (ix is not nil).
func (s *folderSync) checkFolder(ctx context.Context, ix *index.Index, snap *index.Snapshot) error {
	e, err := otherFolderCondition()
	if err != nil {
		return err
	}
	otherFiles, err := e.Bind(s.home)
	if err != nil {
		return err
	}
	docs, err := snap.Select(ctx, otherFiles)
	switch {
	case errors.Is(err, condition.ErrUnknownField): // no document has the fields of a file
		return nil
	case err != nil || docs.IsEmpty():
		return err
	case s.moved && ix != nil:
		home, err := json.Marshal(s.home)
		if err != nil {
			return err
		}
		_, err = ix.UpdatePayload(ctx, otherFiles, condition.Fields{"root": home})
		return err
	case s.moved:
		return nil
	}
	d, err := snap.DocumentAt(docs.Minimum())
	if err != nil {
		return err
	}
	var fields struct{ Root string }
	_ = json.Unmarshal(d.Payload, &fields) // never fails: the condition has read the field
	return flags.Usagef("%w: %s follows %s; give each folder its own index, or use --moved if that folder is now %s",
		errOtherFolder, s.path, fields.Root, s.home)
}

// applyChanges encodes the changed files, and stores them and the deletions in one transaction.
func (s *folderSync) applyChanges(ctx context.Context, changes *pending, next map[string]fileState,
	r *folderReport) (err error) {
	// Without files to encode, only delete documents and store devices.
	if len(changes.files) == 0 {
		return s.changeIndex(ctx, func(ix *index.Index) error {
			if len(changes.deleted) > 0 {
				if _, _, err := ix.Delete(ctx, changes.deleted); err != nil {
					return err
				}
			}
			return s.storeDevices(ctx, ix, changes)
		})
	}
	// Open the index for writing before the files are encoded: if another process has it open, the
	// work would be lost.
	if _, err := os.Stat(s.path); err == nil {
		if err := s.changeIndex(ctx, func(*index.Index) error { return nil }); err != nil {
			return err
		}
	}
	// Encode the files.
	spool, encoded, err := encode.Spool(ctx, s.encoder, s.readPassages(ctx, changes.files, next), "", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	r.Tokens, r.Truncated = encoded.Tokens, encoded.Truncated
	if r.Truncated > 0 {
		s.app.printWarning("%s of %s cut, %s dropped: path and headings leave too little room for the text",
			out.Count(r.Truncated), out.Plural(spool.Len(), "text was", "texts were"),
			out.Plural(encoded.Dropped, "token was", "tokens were"))
	}
	s.app.warnUnknown(encoded)
	// Build the index, or add to it.
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		if spool.Tokens() == 0 {
			return fmt.Errorf("%s: %w", s.root, errNothingToIndex)
		}
		o := s.build
		o.LockTimeout, o.Model = s.app.lockTimeout, s.model
		built, err := index.Build(ctx, s.path, spool, &o)
		s.indexed = indexState{} // others may have changed it since
		if err == nil {
			r.Docs, r.Passages = built.Docs, built.Passages
		}
		return err
	}
	return s.changeIndex(ctx, func(ix *index.Index) error {
		added, err := ix.Add(ctx, spool, &index.AddOptions{
			Replace: true,
			Delete:  changes.deleted,
			Model:   s.model,
			Threads: s.build.Threads,
			Memory:  s.build.Memory,
		})
		if err != nil {
			return err
		}
		r.Docs, r.Passages = added.Docs, added.Passages
		return s.storeDevices(ctx, ix, changes)
	})
}

// errNothingToIndex reports that the files of a folder have no words.
var errNothingToIndex = errors.New("there is nothing to index yet: no file has a word")

// readPassages reads files again, one by one, and returns their passages. It records in next the
// content that it has read, since that content is stored.
func (s *folderSync) readPassages(ctx context.Context, files []*folder.File,
	next map[string]fileState) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for _, f := range files {
			if err := ctx.Err(); err != nil {
				yield(encode.Text{}, err)
				return
			}
			c, err := f.Read(s.maxFileBytes)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, folder.ErrBinary) || errors.Is(err, folder.ErrLarge) {
				// The file has changed: the next sync deletes its documents.
				next[f.Path] = fileState{device: next[f.Path].device}
				continue
			} else if err != nil {
				yield(encode.Text{}, err)
				return
			}
			state := next[f.Path]
			state.digest = c.Digest
			next[f.Path] = state
			c.Root, c.Device = s.home, state.device
			for t, err := range c.Texts(s.splitting) {
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
}
