package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// objects is a JSON-lines file, looked up by the _id or id of its objects. Only
// their places are in memory.
type objects struct {
	*os.File
	at map[string]place
}

type place struct {
	off int64
	n   int
}

func openObjects(path string) (_ *objects, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	o := &objects{File: f, at: map[string]place{}}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	r := bufio.NewReaderSize(f, 1<<16)
	for off, number := int64(0), 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			id, ierr := objectID(text)
			if ierr != nil {
				return nil, fmt.Errorf("%s: line %d: %w", path, number, ierr)
			}
			if _, twice := o.at[id]; twice {
				return nil, fmt.Errorf("%s: line %d: id %q is there twice", path, number, id)
			}
			o.at[id] = place{off + int64(bytes.Index(line, text)), len(text)}
		}
		off += int64(len(line))
		if err != nil {
			return o, nil
		}
	}
}

// objectID is the _id, else the id, of a JSON object: a string or an integer.
func objectID(text []byte) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", fmt.Errorf("no JSON object: %w", err)
	}
	raw := fields["_id"]
	if raw == nil {
		raw = fields["id"]
	}
	var name string
	if json.Unmarshal(raw, &name) == nil && name != "" {
		return name, nil
	}
	var number int64
	if json.Unmarshal(raw, &number) == nil && string(raw) != "null" {
		return string(raw), nil
	}
	return "", errors.New("the object has no _id or id that is a string or an integer")
}

// get returns the object of an id, nil if there is none.
func (o *objects) get(id string) ([]byte, error) {
	p, ok := o.at[id]
	if !ok {
		return nil, nil
	}
	b := make([]byte, p.n)
	if _, err := o.ReadAt(b, p.off); err != nil {
		return nil, fmt.Errorf("%s: object %q: %w", o.Name(), id, err)
	}
	return b, nil
}
