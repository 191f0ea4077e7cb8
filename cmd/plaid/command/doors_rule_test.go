package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/collection"
	collections "github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

// ruleRows are documents of the table "What a document may be", as JSON has them. The tests of Python
// read them, too.
func ruleRows(t *testing.T) (rows []struct {
	Name, ID, Text, Metadata string // JSON; the members of the metadata
	Stored                   bool
	JSON                     bool // of ids and texts as JSON writes them
}) {
	text, err := os.ReadFile("testdata/documents.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &rows))
	require.NotEmpty(t, rows)
	return rows
}

// Each door stores and refuses the same documents.
func TestWhatADocumentMayBe(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	st, err := collections.Open(ctx, filepath.Join(dir, "data"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close(context.Background())) }()
	_, err = st.Create(ctx, served, collection.Config{})
	require.NoError(t, err)
	service, err := server.New(st.Catalog(), tinyEncoder{}, nil)
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
	for _, row := range ruleRows(t) {
		more := row.Metadata
		if more != "" {
			more = "," + more
		}
		doors := map[string]func() error{
			"add": func() error {
				line := fmt.Sprintf(`{"_id":%s,"text":%s%s}`, row.ID, row.Text, more)
				require.NoError(t, os.WriteFile(file, []byte(line), 0o666))
				return command("add", index, "--text", file, "--replace", "-q")
			},
			"index": func() error {
				line := fmt.Sprintf("{\"_id\":\"first\",\"text\":\"cats sleep\"}\n"+`{"_id":%s,"text":%s%s}`, row.ID, row.Text, more)
				require.NoError(t, os.WriteFile(file, []byte(line), 0o666))
				return command("index", filepath.Join(dir, "fresh.plaid"), "--text", file, "--model", nano, "--no-check", "--force", "-q")
			},
			"HTTP": func() error {
				body := fmt.Sprintf(`{"documents":[%s],"metadata":[{"_id":%s%s}]}`, row.Text, row.ID, more)
				r := httptest.NewRequest("POST", "http://localhost"+indexPath+"/update_with_encoding", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				service.ServeHTTP(w, r)
				if w.Code != 202 {
					require.Equal(t, 400, w.Code, row.Name)
					return fmt.Errorf("%s", w.Body)
				}
				return nil
			},
			"Go": func() error {
				d := plaid.Document{}
				for raw, into := range map[string]*string{row.ID: &d.ID, row.Text: &d.Text} {
					if json.Unmarshal([]byte(raw), into) != nil {
						*into = raw // a number
					}
				}
				if row.Metadata != "" {
					d.Payload = []byte("{" + row.Metadata + "}")
				}
				_, err := program.Update(ctx, d)
				return err
			},
		}
		if row.Metadata == "" && !row.JSON { // what a table and a name of a file can say
			var id, text string
			require.NoError(t, json.Unmarshal([]byte(row.ID), &id))
			require.NoError(t, json.Unmarshal([]byte(row.Text), &text))
			doors["csv"] = func() error {
				path := filepath.Join(dir, "x.csv")
				require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "id,text\n\"%s\",\"%s\"\n", id, text), 0o666))
				return command("add", index, "--text", path, "--replace", "-q")
			}
			if !strings.ContainsAny(id+text, "\t\n") {
				doors["tsv"] = func() error {
					path := filepath.Join(dir, "x.tsv")
					require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "id\ttext\n%s\t%s\n", id, text), 0o666))
					return command("add", index, "--text", path, "--replace", "-q")
				}
			}
			if len(id) < 200 && runtime.GOOS != "windows" {
				doors["watch"] = func() error {
					notes, seen := t.TempDir(), filepath.Join(t.TempDir(), "seen.plaid")
					require.NoError(t, os.WriteFile(filepath.Join(notes, "first.txt"), []byte("cats sleep"), 0o666))
					require.NoError(t, os.WriteFile(filepath.Join(notes, id+".txt"), []byte(text), 0o666))
					require.NoError(t, command("watch", seen, notes, "--model", nano, "--once", "-q"))
					return command("get", seen, id+".txt")
				}
			}
		}
		if !effort.Long() && (row.JSON || row.Metadata != "") {
			delete(doors, "index") // it reads texts as add does
		}
		for name, store := range doors {
			if name == "Go" && row.JSON {
				continue // its strings are Go's
			}
			err := store()
			if row.Stored {
				require.NoError(t, err, "%s: %s", name, row.Name)
			} else {
				require.Error(t, err, "%s: %s", name, row.Name)
			}
		}
	}
}
