package encode

import (
	"path/filepath"

	"github.com/plaid-ir/plaid/internal/files"
)

// payloads are those of documents, in a temporary file.
type payloads struct {
	file    *files.Temporary
	ends    []int64 // of each document, the byte behind its payload
	written int64
	buf     []byte // not written yet
}

// payloadBuffer is how much is written at once.
const payloadBuffer = 1 << 20

// newPayloads makes the file in the folder of a path; "" stands for the one of temporary files.
func newPayloads(path string) (*payloads, error) {
	dir := ""
	if path != "" {
		dir = filepath.Dir(path)
	}
	f, err := files.NewTemporary(dir, ".plaid-payloads-*")
	return &payloads{file: f}, err
}

func (p *payloads) len() int { return len(p.ends) }

// bytes is the size of all.
func (p *payloads) bytes() int64 { return p.written + int64(len(p.buf)) }

// add appends one; one without a byte is none.
func (p *payloads) add(b []byte) error {
	p.buf = append(p.buf, b...)
	p.ends = append(p.ends, p.bytes())
	if len(p.buf) >= payloadBuffer {
		return p.flush()
	}
	return nil
}

func (p *payloads) flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	if _, err := p.file.WriteAt(p.buf, p.written); err != nil {
		return err
	}
	p.written += int64(len(p.buf))
	p.buf = p.buf[:0]
	return nil
}

// get is the payload of document i; nil if it has none.
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
