package vectors

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/countdown"
)

// collections make complete sets of files, one of each form, of 3 documents.
func collections(t *testing.T) map[string]func() Files {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o644))
		return path
	}
	values := []float32{1, 2, 3, 4, 5, 6}
	array := npyBytes(t, "<f4", []int{3, 2, 1}, values...)
	tensor := safetensorsBytes(`{"vectors":{"dtype":"F32","shape":[3,2,1],"data_offsets":[0,24]}}`, f32Bytes(values...))
	ids := text("a\nb\nc\n")
	objects := text(`{"_id":"c"}` + "\n" + `{"_id":"a"}` + "\n" + `{"_id":"b"}` + "\n")
	return map[string]func() Files{
		"npy and all": func() Files {
			return Files{Vectors: file("r.npy", npyBytes(t, "<f4", []int{6, 1}, values...)), Lengths: file("r.txt", text("1\n2\n3\n")),
				IDs: file("r.ids", ids), Payload: file("r.jsonl", objects)}
		},
		"masked": func() Files {
			return Files{Vectors: file("m.npy", array), Mask: file("mask.npy", npyInts(t, "|b1", []int{3, 2}, 1, 0, 1, 1, 1, 0))}
		},
		"npz": func() Files {
			return Files{Vectors: file("z.npz", zipBytes(t, stored("vectors.npy", array))), IDs: file("z.json", text(`["a","b","c"]`))}
		},
		"safetensors": func() Files {
			return Files{Vectors: file("s.safetensors", tensor), IDs: file("s.npy", npyInts(t, "<i4", []int{3}, 3, 4, 5))}
		},
		"jsonl": func() Files {
			lines := `{"id":"a","vectors":[[1]]}` + "\n" + `{"id":"b","vectors":[[2]]}` + "\n" + `{"id":"c","vectors":[[3]]}` + "\n"
			return Files{Vectors: file("l.jsonl", text(lines)), Payload: file("l-payload.jsonl", objects)}
		},
	}
}

// changes are what may happen to a file while it is read.
var changes = map[string]func(path string) error{
	"cut":      func(path string) error { return os.Truncate(path, 3) },
	"appended": func(path string) error { return appendTo(path, " ") },
	"written": func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(b)-2] ^= 1
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
		return os.Chtimes(path, time.Time{}, time.Now().Add(time.Second)) // the clock of files is coarse
	},
	"replaced": func(path string) error {
		return replace(path, func(b []byte) { b[len(b)-2] ^= 1 })
	},
	"removed": os.Remove,
}

// replace puts a file with the same time in the place of another one.
func replace(path string, change func(content []byte)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	change(b)
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return err
	}
	if err := os.Chtimes(path+".new", time.Time{}, info.ModTime()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// A file that another one with the same bytes takes the place of has not changed.
func TestFilesReplacedBySame(t *testing.T) {
	for kind, build := range collections(t) {
		files := build()
		s := open(t, files)
		for _, path := range []string{files.Vectors, files.Lengths, files.Mask, files.IDs, files.Payload} {
			if path == "" {
				continue
			}
			want, err := collect(s, 0, 3)
			require.NoError(t, err)
			for range 2 {
				require.NoError(t, replace(path, func([]byte) {}))
				got, err := collect(s, 0, 3)
				require.NoError(t, err, "%s: %s", kind, path)
				require.Equal(t, want, got)
			}
			require.NoError(t, replace(path, func(b []byte) { b[len(b)-2] ^= 1 }))
			_, err = collect(s, 0, 3)
			require.ErrorIs(t, err, ErrChanged, "%s: %s", kind, path)
			require.NoError(t, replace(path, func(b []byte) { b[len(b)-2] ^= 1 }))
		}
	}
}

func appendTo(path, s string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(s)
	return err
}

// A file of a collection that changes, before a pass or within it, ends the pass
// with an error that names it, whichever file it is.
func TestFilesThatChange(t *testing.T) {
	for kind, build := range collections(t) {
		for part := range 5 {
			for what, change := range changes {
				for _, within := range []bool{false, true} {
					files := build()
					path := []string{files.Vectors, files.Lengths, files.Mask, files.IDs, files.Payload}[part]
					if path == "" {
						continue
					}
					s := open(t, files)
					_, err := collect(s, 0, 3)
					require.NoError(t, err, "%s: nothing has changed", kind)
					if !within {
						require.NoError(t, change(path))
					}
					err = nil
					for _, e := range s.Docs(context.Background(), 0, 3) {
						if err = e; within && err == nil {
							within = false
							require.NoError(t, change(path))
						}
					}
					require.ErrorIs(t, err, ErrChanged, "%s: %s %s", kind, path, what)
					require.ErrorContains(t, err, path)
					require.NotErrorIs(t, err, os.ErrNotExist)
					_, err = collect(s, 1, 2)
					require.ErrorIs(t, err, ErrChanged, "a part of a pass: %s: %s %s", kind, path, what)
				}
			}
		}
	}
}

// An object is never given to another document, even if the times and the size of
// the file tell nothing.
func TestPayloadOfAnother(t *testing.T) {
	files := collections(t)["npy and all"]()
	s := open(t, files)
	p, err := OpenPayloads(context.Background(), files.Payload)
	require.NoError(t, err)
	defer p.Close()
	info, err := os.Stat(files.Payload)
	require.NoError(t, err)
	swapped := bytes.Replace(readFile(t, files.Payload), []byte(`"a"}`), []byte(`"b"}`), 1)
	require.NoError(t, os.WriteFile(files.Payload, swapped, 0o644))
	require.NoError(t, os.Chtimes(files.Payload, time.Time{}, info.ModTime()))
	_, err = collect(s, 0, 3)
	require.ErrorIs(t, err, ErrChanged)
	require.ErrorContains(t, err, `the object of "a" is not where it was`)
	_, err = p.Get("a")
	require.ErrorIs(t, err, ErrChanged)
}

func TestOpenPayloads(t *testing.T) {
	path := tempFile(t, "p.jsonl", text("\ufeff"+`{"_id": 7, "text": "seven"}`+"\r\n\r\n"+`  {"id":"a","_id":"x"}  `+"\n"+`{"id":"a"}`))
	p, err := OpenPayloads(context.Background(), path)
	require.NoError(t, err)
	for id, want := range map[string]string{"7": `{"_id": 7, "text": "seven"}`, "x": `{"id":"a","_id":"x"}`, "a": `{"id":"a"}`, "none": ""} {
		b, err := p.Get(id)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	require.NoError(t, p.CheckUnchanged())
	require.NoError(t, appendTo(path, "x"))
	require.ErrorIs(t, p.CheckUnchanged(), ErrChanged)
	require.NoError(t, p.Close())

	for content, want := range map[string]struct {
		err   error
		place string
	}{
		`{"id":1}` + "\n" + `{"_id":"1"}`:  {ErrID, `line 2: bad id: "1" is the id of line 1 and line 2`},
		"\n" + `{"text":"x"}`:              {ErrID, "line 2: "},
		`{"_id":"a","t":"` + "\xff" + `"}`: {ErrPayload, `line 1, document with id "a": `},
		`{"_id":"a"`:                       {ErrFormat, "line 1: "},
		`{"_id":"` + "\x01" + `"}`:         {ErrFormat, "line 1: "},
		`{"_id":""}`:                       {ErrID, "line 1: "},
	} {
		path := tempFile(t, "p.jsonl", text(content))
		_, err := OpenPayloads(context.Background(), path)
		require.ErrorIs(t, err, want.err, content)
		require.ErrorContains(t, err, path+": "+want.place)
	}
	_, err = OpenPayloads(context.Background(), t.TempDir())
	require.ErrorContains(t, err, "is a folder")
	_, err = OpenPayloads(context.Background(), path+".none")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestMatched: a caller that asks for the objects of documents learns which are of none.
func TestMatched(t *testing.T) {
	p, err := OpenPayloads(t.Context(), tempFile(t, "p.jsonl", text(`{"_id":"x"}`+"\n"+`{"_id":"a"}`+"\n"+`{"_id":"y"}`)))
	require.NoError(t, err)
	defer p.Close()
	var told []string
	notice := func(text string) { told = append(told, text) }
	require.NoError(t, p.CheckMatched(notice), "nothing was asked for")
	_, err = p.Get("b")
	require.NoError(t, err)
	err = p.CheckMatched(notice)
	require.ErrorIs(t, err, ErrID)
	require.ErrorContains(t, err, `none of its objects is of a document: line 1 has the id "x", and a document "b"`)
	told = nil
	_, err = p.Get("a")
	require.NoError(t, err)
	require.NoError(t, p.CheckMatched(notice))
	require.Len(t, told, 1)
	require.Contains(t, told[0], `has objects for 1 of 2 documents; 2 lines are of none (the first is line 1, id "x")`)
}

func FuzzPayloads(f *testing.F) {
	for _, s := range []string{`{"_id": "a"}`, `{"id": 7, "x": []}` + "\n\n" + `{"_id": "b"}`, "[1]", `{"_id": null}`, `{"_id": ""}`, "{\"id\": 1}\r\n", "{\"_id\":\"\xff\"}", `{"_id":"a","t":"\ud83d"}`, `{"_id":"a","a":1,"a":2}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		path := tempFile(t, "p.jsonl", text(content))
		p, err := OpenPayloads(context.Background(), path)
		checked(t, err)
		if err != nil {
			return
		}
		defer p.Close()
		for id := range p.objects {
			b, err := p.Get(id)
			if err != nil || !bytes.Contains([]byte(content), b) {
				t.Fatalf("object of %q: %q, %v", id, b, err)
			}
		}
	})
}

func TestReadIDs(t *testing.T) {
	ctx := context.Background()
	path := tempFile(t, "i.txt", text("\ufeffa\r\nb c\n\na\nd"))
	ids, err := ReadIDList(ctx, path)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b c", "a", "d"}, ids)
	_, err = ReadIDs(ctx, path)
	require.ErrorIs(t, err, ErrID)
	require.ErrorContains(t, err, path+": line 3: ")
	ids, err = ReadIDs(ctx, tempFile(t, "i.txt", text("a\nb\n")))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, ids)
	ids, err = ReadIDList(ctx, tempFile(t, "i.json", text(`["a", 7, "a"]`)))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "7", "a"}, ids)
	ids, err = ReadIDList(ctx, tempFile(t, "i.npy", npyInts(t, "<i4", []int{2}, 7, 7)))
	require.NoError(t, err)
	require.Equal(t, []string{"7", "7"}, ids)
	for _, read := range []func(context.Context, string) ([]string, error){ReadIDs, ReadIDList} {
		ids, err = read(ctx, tempFile(t, "i.txt", nil))
		require.NoError(t, err)
		require.NotNil(t, ids)
		require.Empty(t, ids)
	}
	for content, place := range map[string]string{
		"a\n\n\n" + string(bytes.Repeat(text("x"), 9999)): "line 4: bad id: more than 4096 bytes",
		"\n\nb\x1b": "line 3: bad id: control character U+001B",
		"\xff":      "line 1: ",
	} {
		path := tempFile(t, "i.txt", text(content))
		_, err = ReadIDList(ctx, path)
		require.ErrorIs(t, err, ErrID)
		require.ErrorContains(t, err, path+": "+place)
	}
	ids, err = ReadIDs(ctx, tempFile(t, "i.json", text("\ufeff[\"a\", 7]")))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "7"}, ids)
	for name, says := range map[string]string{
		"i.jsonl":        "ids are read from text, one a line", // a line of JSON is no id
		"i.ndjson":       "ids are read from text, one a line",
		"i.tab.JSONL.gz": "ids are read from text, one a line",
	} {
		_, err = ReadIDs(ctx, tempFile(t, name, text("{\"_id\":\"a\"}\n")))
		require.ErrorContains(t, err, says, name)
	}
	lengths, err := new(inputs).readLengths(ctx, tempFile(t, "l.json", text("\ufeff[1, 2]")))
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, lengths)
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = ReadIDs(done, path)
	require.ErrorIs(t, err, context.Canceled)
	_, err = ReadIDs(ctx, t.TempDir())
	require.ErrorIs(t, err, ErrFormat)
}

// Whatever is read line by line when a collection is opened can be broken off: that
// is no fault of the file.
func TestOpenCancelled(t *testing.T) {
	var lines, ids, payload strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, `{"_id": "d%d", "vectors": [[0.125, 0.25, 0.5, 1]]}`+"\n", i)
		fmt.Fprintf(&ids, "other %d %s\n", i, strings.Repeat("x", 40))
		fmt.Fprintf(&payload, `{"_id": "d%d", "text": "some text of it that fills the lines of this file"}`+"\n", i)
	}
	files := Files{
		Vectors: tempFile(t, "d.jsonl", []byte(lines.String())),
		Payload: tempFile(t, "p.jsonl", []byte(payload.String())),
	}
	withIDs := files
	withIDs.IDs, withIDs.Payload = tempFile(t, "ids.txt", []byte(ids.String())), ""
	for what, open := range map[string]func(context.Context) error{
		"lines and payload": func(ctx context.Context) error { return closed(Open(ctx, files)) },
		"lines and ids":     func(ctx context.Context) error { return closed(Open(ctx, withIDs)) },
		"payloads":          func(ctx context.Context) error { return closed(OpenPayloads(ctx, files.Payload)) },
	} {
		n := 0
		for ; ; n++ {
			err := open(countdown.New(n))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, context.Canceled, what)
			require.NotErrorIs(t, err, ErrFormat, what)
			require.NotErrorIs(t, err, ErrID, what)
		}
		require.Greater(t, n, 3, what)
	}
}

func closed[S interface{ Close() error }](s S, err error) error {
	if err != nil {
		return err
	}
	return s.Close()
}
