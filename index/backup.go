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

// Checks says how much of a backup is checked before it takes its place.
type Checks int

const (
	// CheckAll is what [Snapshot.Verify] does.
	CheckAll Checks = iota
	// CheckSums is pages and checksums.
	CheckSums
	// CheckNothing is for those who verify the copy themselves.
	CheckNothing
)

var checkNames = map[Checks]string{CheckAll: "full", CheckSums: "checksums", CheckNothing: "none"}

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

// BackupOptions for Backup and BackupTo. The zero value, or nil, makes a whole
// copy and checks all of it.
type BackupOptions struct {
	// Incremental writes only what has changed into a copy that is there, where
	// that is possible; see [Index.BackupTo].
	Incremental bool
	// Check: of the copy, by BackupTo; of the snapshot before it is written, by
	// Backup.
	Check Checks
	// Force replaces a file that is no index.
	Force bool
	// LockTimeout is how long to wait for a process that writes to an index that
	// is to be replaced; 0: not at all.
	LockTimeout time.Duration
	// Progress, where set, is told how much is written.
	Progress func(Progress)
}

// BackupReport says what a backup wrote.
type BackupReport struct {
	Docs       int    `json:"docs"`       // live ones in the copy
	Passages   int    `json:"passages"`   // in which some of them are stored
	Tokens     uint64 `json:"tokens"`     // of these documents
	Generation uint64 `json:"generation"` // of the index that was copied
	// Size is the length of the copy, Written how much of it was written; free
	// pages are holes.
	Size    int64 `json:"file_bytes"`
	Written int64 `json:"written_bytes"`
	// Incremental: the copy that was there was brought up to date. Whole says why
	// not, where that was asked for.
	Incremental bool   `json:"incremental"`
	Whole       string `json:"whole_because,omitempty"`
	// Seconds for writing, the disk's part included, and for checking.
	Seconds struct {
		Write float64 `json:"write"`
		Check float64 `json:"check"`
	} `json:"seconds"`
}

// ErrSameFile: a backup of an index onto itself.
var ErrSameFile = errors.New("the copy would be the index itself")

// Backup writes the index as it is now to w: a whole index file, which
// [Open] takes. Searches and changes in this process go on meanwhile; the copy
// shows none of the changes that come later.
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

// BackupTo makes a backup at path: written beside it, checked, made durable, and
// then put in its place, so that path holds the copy before or the new one and
// nothing between. Readers of the copy before keep it; see Options.Follow.
//
// With Incremental a copy of this index that is there is brought up to date in
// one transaction instead. For that nobody may have it open, nor another name be
// linked to it. Otherwise, and where it is of another build or more than
// half of it has changed, it is copied as a whole, and the report says why.
//
// Errors: [ErrSameFile], [storage.ErrNotIndex] and [storage.ErrVersion] for what
// only Force replaces, [storage.ErrLocked] for an index that another process
// writes to, [storage.ErrCorrupt] if this one is, and what writing fails with.
// After an error path holds what it held before; with Incremental, or if it is
// [storage.ErrOutcomeUnknown], it may hold the new state.
func (ix *Index) BackupTo(ctx context.Context, path string, opts *BackupOptions) (r *BackupReport, err error) {
	o := valueOrZero(opts)
	err = ix.withSnapshot(func(s *Snapshot, report *BackupReport) error {
		r = report
		hasIndex, err := checkReplaceable(ctx, s, path, o)
		if err != nil {
			return err
		}
		storage.SweepSuccessors(path, ix.log)
		if o.Incremental && hasIndex {
			switch reason, err := r.updateInPlace(ctx, s, path, o); {
			case err != nil:
				return err
			case reason == nil:
				r.Incremental = true
				return nil
			default:
				r.Whole = reason.Error()
			}
		} else if o.Incremental {
			r.Whole = "there is no copy yet"
		}
		return r.writeWhole(ctx, s, path, o)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (ix *Index) withSnapshot(write func(*Snapshot, *BackupReport) error) (err error) {
	s, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return write(s, &BackupReport{
		Docs: s.Documents(), Passages: int(s.State().Passages), Tokens: s.State().LiveTokens, Generation: s.Generation(),
	})
}

func (o *BackupOptions) progress() func(done, total int64) {
	if o.Progress == nil {
		return nil
	}
	return func(done, total int64) { o.Progress(Progress{"backup", done, total, "bytes"}) }
}

func (r *BackupReport) startTimer(seconds *float64) func() {
	start := time.Now()
	return func() { *seconds = math.Round((*seconds+time.Since(start).Seconds())*1e3) / 1e3 }
}

func (r *BackupReport) checkSnapshot(ctx context.Context, v *storage.Snapshot, c Checks) error {
	defer r.startTimer(&r.Seconds.Check)()
	switch c {
	case CheckAll:
		return verifyFileSnapshot(ctx, v)
	case CheckSums:
		return v.VerifyChecksums(ctx)
	}
	return nil
}

// checkReplaceable makes sure that a backup may take the place of path, and tells
// whether an index is there.
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
	f, err := storage.Open(ctx, path, storage.Options{LockTimeout: o.LockTimeout})
	switch {
	case err == nil:
		return true, f.Close()
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(err, storage.ErrLocked):
		return false, fmt.Errorf("what is to be replaced: %w", err)
	case o.Force, errors.Is(err, storage.ErrUnfinished), errors.Is(err, storage.ErrCorrupt):
		return false, nil // the remains of an index
	case errors.Is(err, storage.ErrNotIndex):
		return false, fmt.Errorf("%s: %w", path, storage.ErrNotIndex)
	}
	return false, fmt.Errorf("what is to be replaced: %w", err)
}

// errNotRegular is the error for a name that is not of a regular file.
func errNotRegular(info fs.FileInfo) error {
	if info.IsDir() {
		return fmt.Errorf("%w: a copy is a file", files.ErrFolder)
	}
	return errors.New("only a regular file can be replaced")
}

// writeWhole writes a whole copy.
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
	if r.Size, r.Written, err = dst.Fill(ctx, s.fileSnapshot, o.progress()); err != nil {
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

func (r *BackupReport) checkCopy(ctx context.Context, s *Snapshot, f *storage.File, o BackupOptions) (err error) {
	v, err := f.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if got, want := v.State(), s.State(); v.Generation() != s.Generation() || got.Docs != want.Docs || got.Live != want.Live || got.Tokens != want.Tokens {
		return fmt.Errorf("%w: the copy has %d documents, the index %d", storage.ErrCorrupt, got.Live, want.Live)
	}
	return r.checkSnapshot(ctx, v, o.Check)
}

// maxMirrorBytes bounds what an incremental backup holds in memory.
const maxMirrorBytes = 512 << 20

// updateInPlace brings the copy at path up to date. reason says why it must be copied
// as a whole instead.
func (r *BackupReport) updateInPlace(ctx context.Context, s *Snapshot, path string, o BackupOptions) (reason, err error) {
	pages, err := s.Pages()
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil {
		return err, nil
	} else if storage.SharedWith(path, info) {
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
	stopTimer := r.startTimer(&r.Seconds.Write)
	r.Written, err = s.Mirror(ctx, f, min(pages.Size/2, maxMirrorBytes))
	stopTimer()
	if err == nil {
		err = r.checkCopy(ctx, s, f, o)
	}
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		return nil, ctxErr
	}
	for _, kind := range []error{storage.ErrManyChanges, storage.ErrUnrelated} {
		if errors.Is(err, kind) {
			return kind, nil
		}
	}
	if err != nil { // whatever it is: a whole copy meets it too, or sets it right
		return err, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err, nil
	}
	r.Size = info.Size()
	return nil, nil
}
