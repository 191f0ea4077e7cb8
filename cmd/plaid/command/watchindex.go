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

// indexState identifies the index as a look has left or read it, so that it shows whether others
// have changed or replaced it since.
type indexState struct {
	stamp           storage.Stamp
	file            fs.FileInfo // nil: only the stamp tells
	mayChange       bool        // the file may have changed once more within the same tick of its clock
	changedByOthers bool        // others have changed it between the last look's reading and writing
}

// matches reports whether a file is the one that was seen, as far as its size and time tell.
func (i *indexState) matches(info fs.FileInfo) bool {
	return i.file != nil && os.SameFile(info, i.file) &&
		info.Size() == i.file.Size() && info.ModTime().Equal(i.file.ModTime())
}

// indexStateOf returns the state of an open index; before is the file that its path named before it was
// opened.
func (s *folderSync) indexStateOf(snap *index.Snapshot, before fs.FileInfo) (i indexState, err error) {
	if i.stamp, err = snap.Stamp(); err != nil {
		return i, err
	}
	info, err := os.Stat(s.path)
	if err == nil && before != nil && os.SameFile(before, info) && info.ModTime().UnixNano() == i.stamp.Modified {
		i.file, i.mayChange = info, s.app.now().Sub(info.ModTime()).Abs() < settledAge
	}
	return i, nil // if another file has taken its place already, the next look reads that
}

// followIndex reads the index again if it has changed since the last look.
func (s *folderSync) followIndex(ctx context.Context) error {
	s.indexed.changedByOthers = false
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // or removed since: all files are new
		s.known, s.indexed = map[string]fileState{}, indexState{}
		return nil
	case err != nil:
		return err
	case s.known != nil && s.indexed.matches(info) && !s.indexed.mayChange:
		return nil
	}
	return s.readIndex(ctx, info)
}

// readIndex finds the files that the index has.
func (s *folderSync) readIndex(ctx context.Context, before fs.FileInfo) error {
	return s.app.openSnapshot(ctx, s.path, func(snap *index.Snapshot) error {
		current, err := s.indexStateOf(snap, before)
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
		known, err := filesOf(ctx, snap)
		if err != nil {
			return err
		}
		if err := s.checkCut(known); err != nil {
			return err
		}
		for path, state := range known { // so that only files that may differ are read
			if previous := s.known[path]; state.digest != "" && previous.digest == state.digest {
				state.size, state.time, state.mode = previous.size, previous.time, previous.mode
				known[path] = state
			}
		}
		s.known, s.indexed = known, current
		return nil
	})
}

// filesOf returns the files that an index has. A file that has lost passages, or with passages that
// were changed, has no digest.
func filesOf(ctx context.Context, snap *index.Snapshot) (map[string]fileState, error) {
	known := map[string]fileState{}
	missing := map[string]int{} // passages that have not been found yet
	for ordinal := range snap.State().Docs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !snap.Live(ordinal) {
			continue
		}
		d, err := snap.At(ordinal)
		if err != nil {
			return nil, err
		}
		entry, ok := folder.ReadEntry(d.Payload)
		if !ok {
			continue
		}
		name := snap.DocumentOf(ordinal)
		if name != entry.Path { // a copy of a passage, under another name
			continue
		}
		state, seen := known[name]
		if !seen {
			state = fileState{digest: entry.Digest, device: entry.Device, cut: entry.Cut}
			missing[name] = entry.Parts
		}
		missing[name]--
		if !entry.Intact || entry.Root == "" || entry.Digest != state.digest || entry.Cut != state.cut {
			state.digest = ""
		}
		known[name] = state
	}
	for name, n := range missing {
		if n != 0 {
			state := known[name]
			state.digest = ""
			known[name] = state
		}
	}
	return known, nil
}

// errOtherCut: two processes keep an index, and each cuts files again that the other has cut.
var errOtherCut = errors.New("another plaid watch keeps the index and cuts its files differently")

// maxOtherCuts is how often this process cuts files again that another process has cut differently.
const maxOtherCuts = 2

// checkCut ends this process if another keeps cutting files differently: neither would ever end.
func (s *folderSync) checkCut(known map[string]fileState) error {
	cut := folder.Cut(s.splitting)
	if s.known == nil {
		return nil // at first, the files are cut as this process was told to
	}
	for _, state := range known {
		if state.digest != "" && state.cut != cut {
			if s.otherCuts++; s.otherCuts > maxOtherCuts {
				return flags.Usagef("%s: %w: by %s, and this one by %s; end one of them", s.path, errOtherCut,
					state.cut, cut)
			}
			break
		}
	}
	return nil
}

// changeIndex opens the index to change it, if it is of this folder.
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
		if changedByOthers { // their changes are not in known
			s.indexed = indexState{changedByOthers: true}
		}
		return nil
	})
}

// withSnapshot hands a snapshot of an open index to use, and returns the state that it shows.
func (s *folderSync) withSnapshot(
	ix *index.Index, before fs.FileInfo, use func(*index.Snapshot) error,
) (state indexState, err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return state, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	if state, err = s.indexStateOf(snap, before); err == nil && use != nil {
		err = use(snap)
	}
	return state, err
}

// devicesPerTransaction is the number of files of one transaction.
const devicesPerTransaction = 1000

// storeDevices stores the devices of files that have not changed: after a restart of the system, the
// same file system may have another one.
func (s *folderSync) storeDevices(ctx context.Context, ix *index.Index, work *pending) error {
	for _, device := range slices.Sorted(maps.Keys(work.devices)) {
		value, err := json.Marshal(device)
		if err != nil {
			return err
		}
		for paths := range slices.Chunk(work.devices[device], devicesPerTransaction) {
			where, err := condition.Parse("root = ? AND path IN (?" + strings.Repeat(", ?", len(paths)-1) + ")")
			if err != nil {
				return err
			}
			params := []any{s.home}
			for _, path := range paths {
				params = append(params, path)
			}
			bound, err := where.Bind(params...)
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
