package command

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// indexState identifies the content of the index after the last sync, so that changes by others are
// noticed.
type indexState struct {
	stamp storage.Stamp
	// file is the file that was read. Nil means that only the stamp identifies the content.
	file fs.FileInfo
	// mayChange reports that the file is so young that a further change may have left its time as
	// it is.
	mayChange bool
	// changedByOthers reports that others have changed the index between the reading and the
	// writing of the last sync.
	changedByOthers bool
}

// matches reports whether a file is the one that was read, as far as its size and time show.
func (i *indexState) matches(info fs.FileInfo) bool {
	return i.file != nil && os.SameFile(info, i.file) &&
		info.Size() == i.file.Size() && info.ModTime().Equal(i.file.ModTime())
}

// readIndexState returns the state of an open index. before is the file at the path before the index
// was opened.
func (s *folderSync) readIndexState(snap *index.Snapshot, before fs.FileInfo) (i indexState, err error) {
	if i.stamp, err = snap.Stamp(); err != nil {
		return i, err
	}
	info, err := os.Stat(s.path)
	if err == nil && before != nil && os.SameFile(before, info) && info.ModTime().UnixNano() == i.stamp.Modified {
		i.file, i.mayChange = info, s.app.now().Sub(info.ModTime()).Abs() < settledAge
	}
	return i, nil // if another file has replaced it already, the next sync reads that one
}

// followIndex reads the index again if it has changed since the last sync.
func (s *folderSync) followIndex(ctx context.Context) error {
	s.indexed.changedByOthers = false
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // no index yet, or it was removed: all files are new
		s.known, s.indexed = map[string]fileState{}, indexState{}
		return nil
	case err != nil:
		return err
	case s.known != nil && s.indexed.matches(info) && !s.indexed.mayChange:
		return nil
	}
	return s.readIndex(ctx, info)
}

// readIndex reads which files the index has.
func (s *folderSync) readIndex(ctx context.Context, before fs.FileInfo) error {
	return s.app.openSnapshot(ctx, s.path, func(snap *index.Snapshot) error {
		current, err := s.readIndexState(snap, before)
		if err != nil {
			return err
		}
		if s.known != nil && current.stamp == s.indexed.stamp {
			s.indexed = current
			return nil
		}
		if err := s.checkFolder(ctx, nil, snap); err != nil {
			return err
		}
		files, err := readFileStates(ctx, snap)
		if err != nil {
			return err
		}
		if err := s.checkCut(files); err != nil {
			return err
		}
		// Keep sizes and times, so that only files that may differ are read.
		for path, state := range files {
			if previous := s.known[path]; state.digest != "" && previous.digest == state.digest {
				state.size, state.time, state.mode = previous.size, previous.time, previous.mode
				files[path] = state
			}
		}
		s.known, s.indexed = files, current
		return nil
	})
}

// readFileStates returns the files that an index has. A file that has lost passages, or with passages that
// were changed, has no digest.
func readFileStates(ctx context.Context, snap *index.Snapshot) (map[string]fileState, error) {
	files := map[string]fileState{}
	missing := map[string]int{} // number of passages of a file that were not found yet
	for ordinal := range snap.State().Docs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !snap.Live(ordinal) {
			continue
		}
		d, err := snap.DocumentAt(ordinal)
		if err != nil {
			return nil, err
		}
		entry, ok := folder.ReadEntry(d.Payload)
		if !ok {
			continue
		}
		name := snap.DocumentOf(ordinal)
		if name != entry.Path { // a copy of a passage under another id
			continue
		}
		state, seen := files[name]
		if !seen {
			state = fileState{digest: entry.Digest, device: entry.Device, cut: entry.Cut}
			missing[name] = entry.Parts
		}
		missing[name]--
		if !entry.Intact || entry.Root == "" || entry.Digest != state.digest || entry.Cut != state.cut {
			state.digest = ""
		}
		files[name] = state
	}
	for name, n := range missing {
		if n != 0 {
			state := files[name]
			state.digest = ""
			files[name] = state
		}
	}
	return files, nil
}

// errOtherCut reports that another process keeps the same index with other settings, so that each
// splits again what the other has split.
var errOtherCut = errors.New("another plaid watch maintains the index and splits its files differently")

// maxOtherCuts is how often this process splits files again that another process has split
// differently.
const maxOtherCuts = 2

// checkCut returns an error if another process keeps splitting files differently, since neither
// would ever finish.
func (s *folderSync) checkCut(known map[string]fileState) error {
	cut := folder.Cut(s.splitting)
	if s.known == nil {
		return nil // the first sync splits files with the settings of this process
	}
	for _, state := range known {
		if state.digest != "" && state.cut != cut {
			if s.otherCuts++; s.otherCuts > maxOtherCuts {
				return flags.Usagef("%s: %w: by %s, this one by %s; end one of them", s.path, errOtherCut,
					state.cut, cut)
			}
			break
		}
	}
	return nil
}

// changeIndex opens the index for writing and calls change, if the index belongs to this folder.
func (s *folderSync) changeIndex(ctx context.Context, change func(*index.Index) error) error {
	before, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	return s.app.open(ctx, s.path, true, func(ix *index.Index) error {
		current, err := s.withSnapshot(ix, before,
			func(snap *index.Snapshot) error { return s.checkFolder(ctx, ix, snap) })
		if err != nil {
			return err
		}
		changedByOthers := current.stamp != s.indexed.stamp
		if err := change(ix); err != nil {
			return err
		}
		if s.indexed, err = s.withSnapshot(ix, before, nil); err != nil {
			return err
		}
		if changedByOthers { // known lacks their changes
			s.indexed = indexState{changedByOthers: true}
		}
		return nil
	})
}

// withSnapshot hands a snapshot of an open index to use, and returns the state of the index.
func (s *folderSync) withSnapshot(
	ix *index.Index, before fs.FileInfo, use func(*index.Snapshot) error,
) (state indexState, err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return state, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	if state, err = s.readIndexState(snap, before); err == nil && use != nil {
		err = use(snap)
	}
	return state, err
}

// devicesPerTransaction is the number of files whose devices one transaction stores.
const devicesPerTransaction = 1000

// storeDevices stores the devices of files that have not changed: after a restart of the system, a
// file system may have another device number.
func (s *folderSync) storeDevices(ctx context.Context, ix *index.Index, changes *pending) error {
	for _, device := range slices.Sorted(maps.Keys(changes.devices)) {
		value, err := json.Marshal(device)
		if err != nil {
			return err
		}
		for paths := range slices.Chunk(changes.devices[device], devicesPerTransaction) {
			expression, err := condition.Parse("root = ? AND path IN (?" + strings.Repeat(", ?", len(paths)-1) + ")")
			if err != nil {
				return err
			}
			params := []any{s.home}
			for _, path := range paths {
				params = append(params, path)
			}
			bound, err := expression.Bind(params...)
			if err != nil {
				return err
			}
			if _, err := ix.UpdatePayload(ctx, bound, condition.Fields{"device": value}); err != nil {
				return err
			}
		}
	}
	return nil
}
