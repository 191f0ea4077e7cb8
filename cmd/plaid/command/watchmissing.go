package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
)

// devices are the devices of the folders that a look goes through.
type devices struct {
	sync *folderSync
	dirs map[string]string // by whole path
	err  error             // of the first folder whose device cannot be read
}

func (s *folderSync) newDevices() *devices { return &devices{sync: s, dirs: map[string]string{}} }

// wholePath returns the whole path of a file or folder, given its path with slashes in the folder
// that is watched.
func (s *folderSync) wholePath(dir string) string {
	return filepath.Join(s.home, filepath.FromSlash(dir))
}

// recordDevice remembers the device of a folder that is about to be read.
func (d *devices) recordDevice(dir string) {
	device, err := d.sync.device(dir)
	switch {
	case err == nil:
		d.dirs[dir] = device
	case !isAbsent(err) && d.err == nil:
		d.err = err
	}
}

// ofFile returns the device that a file was found on.
func (d *devices) ofFile(file string) string { return d.dirs[d.sync.wholePath(path.Dir(file))] }

// checkUnchanged returns [errMounted] if the device of a folder has changed since it was about to be read.
func (d *devices) checkUnchanged() error {
	for dir, before := range d.dirs {
		now, err := d.sync.device(dir)
		if err != nil && !isAbsent(err) {
			return err
		} else if err == nil && now != before {
			return fmt.Errorf("%s: %w", dir, errMounted)
		}
	}
	return nil
}

// mountPoints returns the folders at which a file system begins, and those where one is away, with their
// devices.
func (d *devices) mountPoints(m *missingFiles) map[string]string {
	mounts := map[string]string{}
	for dir, device := range d.dirs {
		if dir == d.sync.home || d.dirs[filepath.Dir(dir)] != device {
			mounts[dir] = device
		}
	}
	for dir := range m.away {
		mounts[d.sync.wholePath(dir)], _ = d.sync.device(d.sync.wholePath(dir))
	}
	return mounts
}

// isAbsent reports whether an error says that there is nothing at a path.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) // a folder of the path is a file by now
}

// missingFiles are the files that the index has and a look has not found. Not all of them have been
// deleted:
//
//   - A file stays if its folder is on another file system than the file was: its own is away, be
//     it for a minute or a year. Only --allow-empty takes such a file for deleted, since a later
//     look sees no more than this one.
//   - All stay if all known files have vanished, or more than half of more than fewFiles: the file
//     system may be away without a sign, as on a system without numbers for devices.
//
// Files that are there and no longer qualify, or have been renamed, have not vanished.
type missingFiles struct {
	sync       *folderSync
	paths      []string
	arrived    map[string]int // digests of new files
	visible    int            // known files that the look can tell to be there or not
	allowEmpty bool

	kept      []string
	away      map[string]int // of kept, by the folder whose file system is away
	vanished  int            // of kept, the others
	locations map[string]location
}

// location is where a folder is, or was.
type location struct {
	dir    string // the folder, or the first of its path that is not there
	exists bool
	device string // of the nearest folder of the path that is there
	err    error
}

// onOtherDevice reports whether the folder is known to be on another device than this one, if that is
// known.
func (p *location) onOtherDevice(device string) bool {
	return device != "" && p.device != "" && p.device != device
}

// Of up to fewFiles files all but one may vanish at a time.
const fewFiles = 4

// deletedFiles returns the paths of the files that have been deleted.
func (m *missingFiles) deletedFiles() (deleted []string, err error) {
	if len(m.paths) == 0 {
		return nil, nil
	}
	if _, err := os.Stat(m.sync.home); err != nil { // the whole folder is gone, not its files
		return nil, err
	}
	slices.Sort(m.paths)
	if m.allowEmpty {
		return m.paths, nil
	}
	m.away, m.locations = map[string]int{}, map[string]location{}
	var vanished []string
	for _, file := range m.paths {
		state := m.sync.known[file]
		folder := m.locate(path.Dir(file))
		_, err := os.Lstat(m.sync.wholePath(file))
		switch {
		case folder.err != nil, err != nil && !isAbsent(err), folder.onOtherDevice(state.device):
			m.away[folder.dir]++
			m.kept = append(m.kept, file)
		case err == nil:
			deleted = append(deleted, file)
		case state.digest != "" && m.arrived[state.digest] > 0:
			m.arrived[state.digest]--
			deleted = append(deleted, file)
		default:
			vanished = append(vanished, file)
		}
	}
	m.visible -= len(m.kept)
	if n := len(vanished); n > 0 && (n == m.visible || m.visible > fewFiles && 2*n > m.visible) {
		m.kept = append(m.kept, vanished...)
		m.vanished = n
		return deleted, nil
	}
	deleted = append(deleted, vanished...)
	slices.Sort(deleted)
	return deleted, nil
}

// locate finds where a folder is.
func (m *missingFiles) locate(dir string) location {
	if found, ok := m.locations[dir]; ok {
		return found
	}
	p := location{dir: dir}
	p.device, p.err = m.sync.device(m.sync.wholePath(dir))
	p.exists = p.err == nil
	if isAbsent(p.err) && dir != "." {
		parent := m.locate(path.Dir(dir))
		p.device, p.err = parent.device, parent.err
		if !parent.exists {
			p.dir = parent.dir
		}
	}
	m.locations[dir] = p
	return p
}

// maxFolders is how many folders a message names.
const maxFolders = 3

// keptReason says which files are kept, and how to go on; "" if none are.
func (m *missingFiles) keptReason() string {
	var parts []string
	for i, dir := range slices.Sorted(maps.Keys(m.away)) {
		if i == maxFolders {
			parts = append(parts, "so in "+out.Plural(len(m.away)-i, "more folder"))
			break
		}
		shown := filepath.Join(m.sync.root, filepath.FromSlash(dir))
		parts = append(parts, fmt.Sprintf("%s: %s gone that %s has, together with the file system", shown,
			out.Plural(m.away[dir], "file is", "files are"), m.sync.path))
	}
	if m.vanished > 0 {
		parts = append(parts, fmt.Sprintf("%s: of %s that %s has, %s gone", m.sync.root, out.Plural(m.visible, "file"),
			m.sync.path, out.Plural(m.vanished, "is", "are")))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + ". Is something not mounted? The documents stay: mount it, " +
		"or say --allow-empty once if the files were deleted"
}

// disturbed reports whether the index has been changed by others since the last look, or a file
// system has come or gone, which no event tells.
func (s *folderSync) disturbed() bool {
	info, err := os.Stat(s.path)
	if err != nil && s.indexed.file != nil || err == nil && !s.indexed.matches(info) {
		return true
	}
	for dir, was := range s.mounts {
		if now, _ := s.device(dir); now != was {
			return true
		}
	}
	return false
}
