package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/collection"
	collections "github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/server"
)

// ruleRows are documents of the table "What a document may be", as JSON has them.
var ruleRows = []struct {
	name, id, text, metadata string // JSON; "" is absent
	stored                   bool
	json                     bool // of ids and texts as JSON writes them
}{
	{"plain", `"b"`, `"dogs bark"`, `"n":1`, true, false},
	{"blanks around an id", `" b "`, `"dogs"`, ``, true, false},
	{"an integer as id", `7`, `"dogs"`, ``, true, true},
	{"empty", `"b"`, `""`, `"n":1`, true, false},
	{"blank", `"b"`, `" \t"`, ``, true, false},
	{"missing number", `"b"`, `"dogs"`, `"n":null`, true, false},
	{"a whole pair", `"b"`, `"\ud83d\ude00"`, `"n":"\ud83d\ude00"`, true, false},
	{"a fraction as id", `7.0`, `"dogs"`, ``, false, true},
	{"an exponent as id", `1e3`, `"dogs"`, ``, false, true},
	{"an empty id", `""`, `"dogs"`, ``, false, true},
	{"tab in an id", `"b\tc"`, `"dogs"`, ``, false, false},
	{"line end in an id", `"b\n"`, `"dogs"`, ``, false, false},
	{"mark before an id", `"\ufeffb"`, `"dogs"`, ``, false, false},
	{"long id", `"` + strings.Repeat("x", 4097) + `"`, `"dogs"`, ``, false, false},
	{"half in an id", `"\ud83d"`, `"dogs"`, ``, false, true},
	{"half in a text", `"b"`, `"\ud83d"`, ``, false, true},
	{"half in metadata", `"b"`, `"dogs"`, `"n":["\udc00"]`, false, false},
	{"half in a key", `"b"`, `"dogs"`, `"\ud800":1`, false, false},
	{"no number", `"b"`, `"dogs"`, `"n":NaN`, false, false},
	{"infinite", `"b"`, `"dogs"`, `"n":-Infinity`, false, false},
	{"beyond float64", `"b"`, `"dogs"`, `"n":1e999`, false, false},
	{"key twice", `"b"`, `"dogs"`, `"n":1,"n":2`, false, false},
	{"reserved", `"b"`, `"dogs"`, `"_subset_":1`, false, false},
	{"false passage", `"b"`, `"dogs"`, `"_passage":{"of":"x","n":0,"start":0,"end":1}`, false, false},
	{"nested", `"b"`, `"dogs"`, `"n":` + strings.Repeat("[", 101) + strings.Repeat("]", 101), false, false},
}

// Each door stores and refuses the same documents.
func TestWhatADocumentMayBe(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	st, err := collections.Open(ctx, filepath.Join(dir, "data"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close(context.Background())) }()
	_, err = st.Declare(ctx, served, collection.Config{})
	require.NoError(t, err)
	service, err := server.New(st.Set(), tinyEncoder{}, nil)
	require.NoError(t, err)
	program, err := plaid.Create(ctx, filepath.Join(dir, "go.plaid"), &plaid.Options{Model: nano})
	require.NoError(t, err)
	defer func() { require.NoError(t, program.Close()) }()
	command := func(args ...string) error {
		var stderr bytes.Buffer
		if code := run(ctx, args, streams{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &stderr}); code != 0 {
			return fmt.Errorf("%d: %s", code, &stderr)
		}
		return nil
	}
	file, index := filepath.Join(dir, "x.jsonl"), filepath.Join(dir, "x.plaid")
	require.NoError(t, os.WriteFile(file, []byte(`{"_id":"first","text":"cats sleep"}`), 0o666))
	require.NoError(t, command("index", index, "--text", file, "--model", nano, "--no-check", "-q"))
	for _, row := range ruleRows {
		more := row.metadata
		if more != "" {
			more = "," + more
		}
		doors := map[string]func() error{
			"add": func() error {
				line := fmt.Sprintf(`{"_id":%s,"text":%s%s}`, row.id, row.text, more)
				require.NoError(t, os.WriteFile(file, []byte(line), 0o666))
				return command("add", index, "--text", file, "--replace", "-q")
			},
			"HTTP": func() error {
				body := fmt.Sprintf(`{"documents":[%s],"metadata":[{"_id":%s%s}]}`, row.text, row.id, more)
				r := httptest.NewRequest("POST", "http://localhost"+indexPath+"/update_with_encoding", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				service.ServeHTTP(w, r)
				if w.Code != 202 {
					require.Equal(t, 400, w.Code, row.name)
					return fmt.Errorf("%s", w.Body)
				}
				return nil
			},
			"Go": func() error {
				d := plaid.Document{}
				for raw, into := range map[string]*string{row.id: &d.ID, row.text: &d.Text} {
					if json.Unmarshal([]byte(raw), into) != nil {
						*into = raw // a number
					}
				}
				if row.metadata != "" {
					d.Payload = []byte("{" + row.metadata + "}")
				}
				_, err := program.Update(ctx, d)
				return err
			},
		}
		for name, store := range doors {
			if name == "Go" && row.json {
				continue // its strings are Go's
			}
			err := store()
			if row.stored {
				require.NoError(t, err, "%s: %s", name, row.name)
			} else {
				require.Error(t, err, "%s: %s", name, row.name)
			}
		}
	}
}
