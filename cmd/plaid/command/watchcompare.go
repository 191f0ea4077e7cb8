package command

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/encode/folder"
)

// comparison compares the files of a folder with those that the index has.
type comparison struct {
	sync    *folderSync
	begin   time.Time // of the sync
	cut     string    // how files are split, as folder.Cut describes it
	devices *devices
	skipped *folder.Skipped
	report  *folderReport
	// next are the files that the index shall have.
	next map[string]fileState
	// arrived counts new files by their digests.
	arrived map[string]int
	changes pending
}

// compareFile compares an existing file with the index.
func (c *comparison) compareFile(f *folder.File) error {
	state, inIndex := c.sync.known[f.Path]
	device := cmp.Or(c.devices.ofFile(f.Path), state.device)
	// Size, mode and time show that the file is unchanged: at most its device is new.
	if inIndex && state.isUnchanged(f) && state.cut == c.cut {
		if state.device != device {
			c.changes.addDevice(device, f.Path)
			state.device = device
		}
		c.next[f.Path] = state
		return nil
	}
	// Read the file, and skip it if it is not a text.
	content, err := f.Read(c.sync.maxFileBytes)
	switch {
	case errors.Is(err, folder.ErrBinary), errors.Is(err, folder.ErrLarge), errors.Is(err, fs.ErrNotExist):
		c.report.Passed++
		c.skipped.AddFile(f.Path, strings.TrimPrefix(err.Error(), f.Path+": "))
		return nil
	case errors.Is(err, fs.ErrPermission):
		c.skipped.AddClosed(f.Path)
		return nil
	case err != nil:
		return err
	case !inIndex:
		c.report.Added++
		c.arrived[content.Digest]++
		c.changes.files = append(c.changes.files, f)
	case state.digest != content.Digest || state.cut != c.cut:
		c.report.Changed++
		c.changes.files = append(c.changes.files, f)
	case state.device != device:
		c.changes.addDevice(device, f.Path)
	}
	// Record its state.
	state = fileState{content.Digest, device, c.cut, f.Size, f.Time, f.Mode}
	if c.begin.Sub(f.Time).Abs() < settledAge { // a further change may leave its time as it is
		state.time, c.report.syncAgain = time.Time{}, true
	}
	c.next[f.Path] = state
	return nil
}

// findMissing decides which of the files that were not found were deleted.
func (c *comparison) findMissing() (*missingFiles, error) {
	s := c.sync
	missing := &missingFiles{
		sync:       s,
		arrived:    c.arrived,
		visible:    len(s.known),
		allowEmpty: s.allowEmpty,
	}
	for path, state := range s.known {
		if _, stays := c.next[path]; stays {
			continue
		} else if c.skipped.MayHide(path) { // it cannot be seen now: keep it, and read it when it can be
			c.next[path] = state.unread()
			missing.visible--
			continue
		}
		missing.paths = append(missing.paths, path)
	}
	var err error
	if c.changes.deleted, err = missing.deletedFiles(); err != nil {
		return nil, err
	}
	for _, path := range missing.keptFiles {
		c.next[path] = s.known[path].unread()
	}
	return missing, nil
}

// unread returns the state of a file that cannot be seen: it is read when it is there again.
func (f fileState) unread() fileState {
	f.time = time.Time{}
	return f
}

// pending are the changes that a sync has found.
type pending struct {
	files []*folder.File
	// deleted are the names of documents to delete.
	deleted []string
	// devices are the paths of files that have changed only their device, by the new device.
	devices map[string][]string
}

// addDevice adds a file that has changed only its device.
func (p *pending) addDevice(device, path string) {
	if p.devices == nil {
		p.devices = map[string][]string{}
	}
	p.devices[device] = append(p.devices[device], path)
}

// isEmpty reports whether there is nothing to change.
func (p *pending) isEmpty() bool { return len(p.files)+len(p.deleted)+len(p.devices) == 0 }
