package mcp

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Of any bytes a message is made that the library reads, or an answer that says what is wrong; the id is
// one of the bytes.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{"name":"search","arguments":{"k":null,"like":[null,{"a":null}]}}}`,
		`{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"ping","params":null}`, `[{}]`, `{"id":"\ud83d"}`, "\ufeff{}", `{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"result":{}}`, `{,}`, ` `, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		message, wrong := parseFrame(text)
		id := message.id
		if wrong != nil {
			if message.request != nil {
				t.Fatalf("%q is refused, and taken", text)
			}
			if !json.Valid(wrong.encode()) || wrong.code == 0 || wrong.message == "" {
				t.Fatalf("%q: %s", text, wrong.encode())
			}
			id = wrong.id
		}
		if !bytes.Contains(text, id) {
			t.Fatalf("%q: id %q", text, id)
		}
		if r := message.request; r != nil && (r.Method == "" || r.Params != nil && !json.Valid(r.Params) || r.ID.IsValid()) {
			t.Fatalf("%q: %+v", text, r)
		}
		_ = findID(text)
	})
}
