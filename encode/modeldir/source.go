package modeldir

import (
	"os"
	"path/filepath"
)

// Files fetches the files of a model's folder when they are read. [ReadFiles] uses no other
// information about the folder, so that it ignores other files there.
type Files interface {
	// Dir returns the folder that files are fetched into.
	Dir() string
	// Has reports whether the model has a file, by its path within the folder, with slashes.
	Has(name string) (bool, error)
	// Get fetches a file of the model into the folder, unless it is there.
	Get(name string) error
}

// exists reports whether a file exists and is not a folder. After an error of source it
// returns false, and reading the model returns the error at the end.
func (r *reader) exists(path string) bool {
	if r.source == nil {
		info, err := os.Stat(path)
		return err == nil && !info.IsDir()
	}
	name, err := filepath.Rel(r.dir, path)
	if err != nil || r.sourceErr != nil || !filepath.IsLocal(name) {
		return false
	}
	ok, err := r.source.Has(filepath.ToSlash(name))
	r.sourceErr = err
	return ok && err == nil
}

// fetchFile fetches a file into the folder, if the model has it.
func (r *reader) fetchFile(path string) error {
	if r.source == nil || !r.exists(path) {
		return r.sourceErr
	}
	name, err := filepath.Rel(r.dir, path)
	if err != nil {
		return err
	}
	r.sourceErr = r.source.Get(filepath.ToSlash(name))
	return r.sourceErr
}

// open reads a file of settings of the folder. nil means that it does not exist.
func (r *reader) open(path string) (*file, error) {
	if err := r.fetchFile(path); err != nil {
		return nil, err
	}
	return openFile(path)
}

// readJSON returns the content of a file of the folder. nil means that it does not exist.
func (r *reader) readJSON(path string) ([]byte, error) {
	if err := r.fetchFile(path); err != nil {
		return nil, err
	}
	return readJSON(path)
}
