package encode

import (
	"path/filepath"

	"github.com/plaid-ir/plaid/internal/files"
)

// payloads stores the payloads of documents, in their order, in a temporary file.
type payloads struct {
	file    *files.Temporary
	ends    []int64 // of each document, the offset behind its payload
	written int64   // bytes in the file
	buffer  []byte  // bytes that are not written yet
}

// payloadBuffer is how many bytes are written at once.
const payloadBuffer = 1 << 20

// newPayloads creates the file in the folder of a path. "" means the folder of temporary files.
func newPayloads(path string) (*payloads, error) {
	dir := ""
	if path != "" {
		dir = filepath.Dir(path)
	}
	f, err := files.NewTemporary(dir, ".plaid-payloads-*")
	return &payloads{file: f}, err
}

func (p *payloads) len() int { return len(p.ends) }

// size returns the bytes of all payloads.
func (p *payloads) size() int64 { return p.written + int64(len(p.buffer)) }

// add appends the payload of the next document; an empty payload counts as nil.
func (p *payloads) add(b []byte) error {
	p.buffer = append(p.buffer, b...)
	p.ends = append(p.ends, p.size())
	if len(p.buffer) >= payloadBuffer {
		return p.flush()
	}
	return nil
}

// flush writes the buffered bytes to the file.
func (p *payloads) flush() error {
	if len(p.buffer) == 0 {
		return nil
	}
	if _, err := p.file.WriteAt(p.buffer, p.written); err != nil {
		return err
	}
	p.written += int64(len(p.buffer))
	p.buffer = p.buffer[:0]
	return nil
}

// get returns the payload of document i. nil means that it has none.
func (p *payloads) get(i int) ([]byte, error) {
	if err := p.flush(); err != nil {
		return nil, err
	}
	begin := int64(0)
	if i > 0 {
		begin = p.ends[i-1]
	}
	if p.ends[i] == begin {
		return nil, nil
	}
	b := make([]byte, p.ends[i]-begin)
	_, err := p.file.ReadAt(b, begin)
	return b, err
}

func (p *payloads) close() error { return p.file.Close() }
