package modeldir

import (
	"os"
	"path/filepath"
)

// Files are those of a model's folder, fetched as they are asked for. [ReadFiles] asks nothing but
// these about a folder, so that it reads the files that are fetched, and no others.
type Files interface {
	// Dir is the folder that they come into.
	Dir() string
	// Has reports whether there is a file, by its path within the folder, with slashes.
	Has(name string) (bool, error)
	// Get sees to it that a file that is there lies in the folder.
	Get(name string) error
}

// exists reports whether there is such a file, which must not be a folder. Of an error of source it
// reports false, and the reading fails in the end.
func (r *reader) exists(path string) bool {
	if r.source == nil {
		info, err := os.Stat(path)
		return err == nil && !info.IsDir()
	}
	name, err := filepath.Rel(r.dir, path)
	if err != nil || r.failed != nil || !filepath.IsLocal(name) {
		return false
	}
	ok, err := r.source.Has(filepath.ToSlash(name))
	r.failed = err
	return ok && err == nil
}

// get sees to it that a file lies in the folder, if there is one.
func (r *reader) get(path string) error {
	if r.source == nil || !r.exists(path) {
		return r.failed
	}
	name, err := filepath.Rel(r.dir, path)
	if err != nil {
		return err
	}
	r.failed = r.source.Get(filepath.ToSlash(name))
	return r.failed
}

// open reads a file of settings of the folder; one that is not there is nil.
func (r *reader) open(path string) (*file, error) {
	if err := r.get(path); err != nil {
		return nil, err
	}
	return openFile(path)
}

// readJSON is the content of a file of the folder; of one that is not there it is nil.
func (r *reader) readJSON(path string) ([]byte, error) {
	if err := r.get(path); err != nil {
		return nil, err
	}
	return readJSON(path)
}
