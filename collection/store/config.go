package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
)

// A configuration file is JSON whose last member is a checksum (CRC-32C) of all bytes before it. Without it, a flipped
// bit could make a field name unknown or change a number, and either would take effect unnoticed.
const (
	checksumBegin = ",\n  \"checksum\": \"crc32c:"
	checksumEnd   = "\"\n}\n"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// configWriter returns a function that writes the file of a configuration.
func configWriter(c collection.Config) func(w io.Writer) error {
	return func(w io.Writer) error {
		text, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			return err
		}
		text = bytes.TrimSuffix(text, []byte("\n}"))
		_, err = fmt.Fprintf(w, "%s%s%08x%s", text, checksumBegin, crc32.Checksum(text, castagnoli), checksumEnd)
		return err
	}
}

// readConfig reads a configuration file. The error of a damaged one wraps [storage.ErrCorrupt].
func readConfig(path string) (c collection.Config, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	broken := func(format string, args ...any) (collection.Config, error) {
		return collection.Config{}, fmt.Errorf("%s: %w: %s", path, storage.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	i := bytes.LastIndex(text, []byte(checksumBegin))
	if i < 0 {
		return broken("it has no checksum")
	}
	want := fmt.Sprintf("%s%08x%s", checksumBegin, crc32.Checksum(text[:i], castagnoli), checksumEnd)
	if string(text[i:]) != want {
		return broken("its checksum does not match its bytes")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&c); err != nil {
		return broken("%v", err)
	}
	if trailing := bytes.TrimSpace(text[d.InputOffset():]); len(trailing) > 0 {
		return broken("bytes follow the configuration")
	}
	if c, err = c.Completed(); err != nil {
		return broken("%v", err)
	}
	return c, nil
}

func writeConfig(ctx context.Context, path string, c collection.Config) error {
	return files.WriteAtomic(ctx, path, configWriter(c))
}
