package eval

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// FuzzReadRecords feeds the reader of corpus.jsonl and queries.jsonl.
func FuzzReadRecords(f *testing.F) {
	for _, seed := range []string{
		"", `{"_id": "1", "title": "t", "text": "x"}` + "\r\n", `{"_id": 1}`, `{"_id": null}`, `[]`, `{"_id": "1"}{`, "\x1f\x8b",
		`{"_id": "\ud800", "text": "\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := readRecords(context.Background(), bytes.NewReader(data), "fuzz", func(rec *record) error {
			if rec.ID == nil || *rec.ID == "" {
				t.Fatal("a record without id")
			}
			return nil
		})
		var at *LineError
		if err != nil && (!errors.As(err, &at) || at.Line < 1) {
			t.Fatalf("%v names no line", err)
		}
	})
}
