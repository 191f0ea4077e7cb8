package interop

import (
	"encoding/json"
	"os"
	"runtime"

	"github.com/plaid-ir/plaid/vectors"
)

// npyFile is a new .npy file that is flushed to disk when it is closed.
type npyFile struct {
	*vectors.NPYWriter
	file *os.File
}

func createNPY(path, dtype string, shape ...int) (*npyFile, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	w, err := vectors.NewNPYWriter(file, dtype, shape...)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &npyFile{NPYWriter: w, file: file}, nil
}

func (w *npyFile) close() error {
	err := w.NPYWriter.Close()
	if err == nil {
		err = w.file.Sync()
	}
	if e := w.file.Close(); err == nil {
		err = e
	}
	return err
}

// discard closes the file without regard to its content. w may be nil, or closed.
func (w *npyFile) discard() {
	if w != nil {
		w.file.Close()
	}
}

// writeNPY writes a file in one go; fill gives it its elements.
func writeNPY(path, dtype string, shape []int, fill func(w *vectors.NPYWriter) error) error {
	w, err := createNPY(path, dtype, shape...)
	if err != nil {
		return err
	}
	if err := fill(w.NPYWriter); err != nil {
		w.discard()
		return err
	}
	return w.close()
}

func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if e := file.Close(); err == nil {
		err = e
	}
	return err
}

// syncDir makes the entries of a folder durable where the system can do that.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}
