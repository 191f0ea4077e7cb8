package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
)

// Checks selects the checks that a backup makes before it replaces the previous copy.
type Checks int

const (
	// CheckAll verifies everything, as [Snapshot.Verify] does.
	CheckAll Checks = iota
	// CheckChecksums verifies pages and checksums.
	CheckChecksums
	// CheckNothing verifies nothing, for callers who verify the copy themselves.
	CheckNothing
)

var checkNames = map[Checks]string{CheckAll: "full", CheckChecksums: "checksums", CheckNothing: "none"}

func (c Checks) String() string { return checkNames[c] }

// ParseChecks is the inverse of Checks.String.
func ParseChecks(s string) (Checks, error) {
	for c, name := range checkNames {
		if name == s {
			return c, nil
		}
	}
	return 0, fmt.Errorf("%w: checks %q; there are full, checksums and none", ErrOption, s)
}

// BackupOptions configures Backup and BackupTo. The zero value, or nil, makes a complete copy and
// checks all of it.
type BackupOptions struct {
	// Incremental writes only the changed pages into an existing copy, if possible; see
	// [Index.BackupTo].
	Incremental bool
	// Check selects the checks: of the copy in BackupTo, of the snapshot before it is written in
	// Backup.
	Check Checks
	// Force replaces a file that is not an index.
	Force bool
	// LockTimeout is how long to wait for a process that writes to the index that will be replaced.
	// 0 means not at all.
	LockTimeout time.Duration
	// Progress, if not nil, is called with the progress of writing.
	Progress func(Progress)
}

// BackupReport describes the result of a backup.
type BackupReport struct {
	Docs       int    `json:"docs"`       // live documents in the copy
	Passages   int    `json:"passages"`   // passages in which some of them are stored
	Tokens     uint64 `json:"tokens"`     // of these documents
	Generation uint64 `json:"generation"` // of the index that was copied
	// Size is the length of the copy, Written the number of bytes that were written; free pages are
	// holes.
	Size    int64 `json:"file_bytes"`
	Written int64 `json:"written_bytes"`
	// Incremental means that the existing copy was updated. If an incremental backup was asked for,
	// but not possible, WholeReason is the reason.
	Incremental bool   `json:"incremental"`
	WholeReason string `json:"whole_because,omitempty"`
	// Seconds is the duration of writing, including the disk, and of checking.
	Seconds struct {
		Write float64 `json:"write"`
		Check float64 `json:"check"`
	} `json:"seconds"`
}

// ErrSameFile reports a backup of an index onto itself.
var ErrSameFile = errors.New("the copy would be the index itself")

// Backup writes the current state of the index to w, as a complete index file that [Open] opens.
// Searches and changes in this process continue meanwhile; the copy has none of the later changes.
func (ix *Index) Backup(ctx context.Context, w io.Writer, opts *BackupOptions) (r *BackupReport, err error) {
	o := valueOrZero(opts)
	err = ix.withSnapshot(func(s *Snapshot, report *BackupReport) error {
		r = report
		if err := r.checkSnapshot(ctx, s.fileSnapshot, o.Check); err != nil {
			return err
		}
		defer r.startTimer(&r.Seconds.Write)()
		var err error
		r.Size, err = s.CopyTo(ctx, w, o.progress())
		r.Written = r.Size
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// BackupTo makes a backup at path: it writes a temporary file in the same folder, checks it, makes
// it durable, and renames it to path. So path has the previous copy or the new one at any time.
// Readers of the previous copy keep it; see Options.Follow.
//
// With Incremental, an existing copy of this index is updated in one transaction instead. For that
// no process may have it open, and no other name may be linked to it. If that is not so, or if the
// copy is of another build, or if more than half of it has changed, a complete copy is made, and
// the report gives the reason.
//
// Errors: [ErrSameFile]; [storage.ErrNotIndex] and [storage.ErrVersion] for a file that only Force
// replaces; [storage.ErrLocked] for an index that another process writes to; [storage.ErrCorrupt]
// if this index is damaged; and those of writing. After an error path has its old content; with
// Incremental, or after [storage.ErrOutcomeUnknown], it may have the new state.
func (ix *Index) BackupTo(ctx context.Context, path string, opts *BackupOptions) (r *BackupReport, err error) {
	o := valueOrZero(opts)
	err = ix.withSnapshot(func(s *Snapshot, report *BackupReport) error {
		r = report
		hasIndex, err := checkReplaceable(ctx, s, path, o)
		if err != nil {
			return err
		}
		storage.RemoveAbandonedSuccessors(path, ix.log)
		if o.Incremental && hasIndex {
			switch reason, err := r.updateInPlace(ctx, s, path, o); {
			case err != nil:
				return err
			case reason == nil:
				r.Incremental = true
				return nil
			default:
				r.WholeReason = reason.Error()
			}
		} else if o.Incremental {
			r.WholeReason = "there is no copy yet"
		}
		return r.writeWhole(ctx, s, path, o)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// withSnapshot calls write with the current snapshot and a report about it.
func (ix *Index) withSnapshot(write func(*Snapshot, *BackupReport) error) (err error) {
	s, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return write(s, &BackupReport{
		Docs:       s.Documents(),
		Passages:   int(s.State().Passages),
		Tokens:     s.State().LiveTokens,
		Generation: s.Generation(),
	})
}

// progress returns the callback that storage calls, or nil without a Progress callback.
func (o *BackupOptions) progress() func(done, total int64) {
	if o.Progress == nil {
		return nil
	}
	return func(done, total int64) { o.Progress(Progress{"backup", done, total, "bytes"}) }
}

// startTimer returns a function that adds the time since the call to seconds, and rounds these to
// milliseconds.
func (r *BackupReport) startTimer(seconds *float64) func() {
	start := time.Now()
	return func() { *seconds = math.Round((*seconds+time.Since(start).Seconds())*1e3) / 1e3 }
}

// checkSnapshot runs the selected checks on a snapshot.
func (r *BackupReport) checkSnapshot(ctx context.Context, snap *storage.Snapshot, c Checks) error {
	defer r.startTimer(&r.Seconds.Check)()
	switch c {
	case CheckAll:
		return verifyFileSnapshot(ctx, snap)
	case CheckChecksums:
		return snap.VerifyChecksums(ctx)
	}
	return nil
}

// checkReplaceable checks that a backup may replace the file at path, and reports whether an index
// is there.
func checkReplaceable(ctx context.Context, s *Snapshot, path string, o BackupOptions) (hasIndex bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if same, err := s.IsFile(info); err != nil {
		return false, err
	} else if same {
		return false, fmt.Errorf("%s: %w", path, ErrSameFile)
	}
	if !info.Mode().IsRegular() { // not even by force
		return false, fmt.Errorf("%s: %w", path, errNotRegular(info))
	}
	if info.Size() == 0 {
		return false, nil
	}
	// An index is replaced; another file only by Force, or if it is the remains of an index.
	f, err := storage.Open(ctx, path, storage.Options{LockTimeout: o.LockTimeout})
	switch {
	case err == nil:
		return true, f.Close()
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(err, storage.ErrLocked):
		return false, fmt.Errorf("the file to be replaced: %w", err)
	case o.Force, errors.Is(err, storage.ErrUnfinished), errors.Is(err, storage.ErrCorrupt):
		return false, nil
	case errors.Is(err, storage.ErrNotIndex):
		return false, fmt.Errorf("%s: %w", path, storage.ErrNotIndex)
	}
	return false, fmt.Errorf("the file to be replaced: %w", err)
}

// errNotRegular returns the error for a path that is not a regular file.
func errNotRegular(info fs.FileInfo) error {
	if info.IsDir() {
		return fmt.Errorf("%w: a copy is a file", files.ErrFolder)
	}
	return errors.New("only a regular file can be replaced")
}

// writeWhole writes a complete copy and renames it to path.
func (r *BackupReport) writeWhole(ctx context.Context, s *Snapshot, path string, o BackupOptions) (err error) {
	mode, err := s.Mode()
	if err != nil {
		return err
	}
	dst, err := storage.NewSuccessor(path)
	if err != nil {
		return fmt.Errorf("backup to %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("backup to %s: %w", path, errors.Join(err, dst.Discard()))
		}
	}()
	stopTimer := r.startTimer(&r.Seconds.Write)
	if r.Size, r.Written, err = dst.WriteSnapshot(ctx, s.fileSnapshot, o.progress()); err != nil {
		return err
	}
	stopTimer()
	if err := r.checkFile(ctx, s, dst.Name(), o); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	defer r.startTimer(&r.Seconds.Write)()
	return dst.Commit(mode)
}

// checkFile opens a copy and checks it.
func (r *BackupReport) checkFile(ctx context.Context, s *Snapshot, path string, o BackupOptions) (err error) {
	f, err := storage.Open(ctx, path, storage.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.checkCopy(ctx, s, f, o)
}

// checkCopy checks that an open copy has the state of the snapshot, and runs the selected checks.
func (r *BackupReport) checkCopy(ctx context.Context, s *Snapshot, f *storage.File, o BackupOptions) (err error) {
	copied, err := f.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	got, want := copied.State(), s.State()
	sameSize := got.Docs == want.Docs && got.Live == want.Live && got.Tokens == want.Tokens
	if copied.Generation() != s.Generation() || !sameSize {
		return fmt.Errorf("%w: the copy has %d documents, the index %d", storage.ErrCorrupt, got.Live, want.Live)
	}
	return r.checkSnapshot(ctx, copied, o.Check)
}

// maxMirrorBytes bounds the memory of an incremental backup.
const maxMirrorBytes = 512 << 20

// updateInPlace updates the copy at path. reason, if not nil, is why a complete copy must be made
// instead.
func (r *BackupReport) updateInPlace(
	ctx context.Context, s *Snapshot, path string, o BackupOptions,
) (reason, err error) {
	// Open the copy for writing.
	pages, err := s.Pages()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil {
		return err, nil
	} else if storage.HasOtherNames(path, info) {
		return errors.New("the copy has other names, which would change too"), nil
	}
	f, err := storage.Open(ctx, path, storage.Options{Write: true})
	if errors.Is(err, storage.ErrLocked) {
		return errors.New("the copy is open elsewhere"), nil
	} else if err != nil {
		return err, nil
	}
	defer func() {
		if closeErr := f.Close(); closeErr != nil && reason == nil {
			reason = closeErr
		}
	}()
	// Write the changed pages, and check the copy.
	// If more than half of the pages have changed, a complete copy is better.
	stopTimer := r.startTimer(&r.Seconds.Write)
	r.Written, err = s.Mirror(ctx, f, min(pages.Size/2, maxMirrorBytes))
	stopTimer()
	if err == nil {
		err = r.checkCopy(ctx, s, f, o)
	}
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		return nil, ctxErr
	}
	for _, kind := range []error{storage.ErrTooManyChanges, storage.ErrUnrelated} {
		if errors.Is(err, kind) {
			return kind, nil
		}
	}
	if err != nil { // any other error: a complete copy meets it too, or repairs it
		return err, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err, nil
	}
	r.Size = info.Size()
	return nil, nil
}
