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

// devices are the devices of the folders that a sync reads.
type devices struct {
	sync *folderSync
	// dirs maps the full path of a folder to its device.
	dirs map[string]string
	// err is the error of the first folder whose device cannot be read.
	err error
}

// newDevices returns an empty record for one sync.
func (s *folderSync) newDevices() *devices { return &devices{sync: s, dirs: map[string]string{}} }

// wholePath returns the full path of a file or folder, given its path within the watched folder,
// with slashes.
func (s *folderSync) wholePath(dir string) string {
	return filepath.Join(s.home, filepath.FromSlash(dir))
}

// recordDevice records the device of a folder that is about to be read.
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

// checkUnchanged returns [errMounted] if the device of a folder has changed since it was recorded.
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

// mountPoints returns the folders at which a file system begins, and those whose file system is
// away, with their devices.
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
	// ENOTDIR: a folder of the path has become a file.
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// missingFiles are the files that the index has and a sync did not find. Not all of them were
// deleted:
//
// 1. A file is kept if its folder is now on another file system than the file was: its own file
// system is away, for a minute or for a year. Only --allow-empty takes such a file for deleted,
// since later syncs see no more than this one.
//
// 2. All files are kept if all known files have vanished, or more than half of more than fewFiles:
// the file system may be away without a sign, as on a system without device numbers.
//
// 3. A file that exists but no longer qualifies, or that was renamed, has not vanished.
type missingFiles struct {
	sync  *folderSync
	paths []string
	// arrived counts new files by their digests.
	arrived map[string]int
	// visible is the number of known files that the sync can tell to exist or not.
	visible    int
	allowEmpty bool

	keptFiles []string
	// away counts the kept files by the folder whose file system is away.
	away map[string]int
	// vanished is the number of the other kept files.
	vanished  int
	locations map[string]location
}

// location says where a folder is, or was.
type location struct {
	// dir is the folder, or the first folder of its path that does not exist.
	dir    string
	exists bool
	// device is that of the nearest folder of the path that exists.
	device string
	err    error
}

// onOtherDevice reports whether the folder is on another device than this one, if both are known.
func (p *location) onOtherDevice(device string) bool {
	return device != "" && p.device != "" && p.device != device
}

// fewFiles is the number of files up to which all but one may vanish at a time.
const fewFiles = 4

// deletedFiles returns the paths of the files that were deleted, and records the files that are
// kept.
func (m *missingFiles) deletedFiles() (deleted []string, err error) {
	if len(m.paths) == 0 {
		return nil, nil
	}
	if _, err := os.Stat(m.sync.home); err != nil { // the whole folder is gone, which says nothing about its files
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
			m.keptFiles = append(m.keptFiles, file)
		case err == nil:
			deleted = append(deleted, file)
		case state.digest != "" && m.arrived[state.digest] > 0:
			m.arrived[state.digest]--
			deleted = append(deleted, file)
		default:
			vanished = append(vanished, file)
		}
	}
	m.visible -= len(m.keptFiles)
	if n := len(vanished); n > 0 && (n == m.visible || m.visible > fewFiles && 2*n > m.visible) {
		m.keptFiles = append(m.keptFiles, vanished...)
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

// maxFolders is the number of folders that a message names.
const maxFolders = 3

// keptReason says which files are kept, and how to continue, or "" if none are.
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

// disturbed reports whether others have changed the index since the last sync, or whether a file
// system was mounted or unmounted. No event reports these.
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
