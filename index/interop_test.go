package index

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// fingerprint of a folder: names, times, contents.
func fingerprint(t *testing.T, dir string) string {
	var b strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintln(&b, path, info.Size(), info.ModTime(), info.Mode(), sha256.Sum256(data))
		return err
	}))
	return b.String()
}

// requireSameTokens compares the live documents of an index with an index
// folder: lengths, codes and buckets, in order.
func requireSameTokens(t *testing.T, s *Snapshot, dir string) {
	t.Helper()
	src, err := interop.Open(dir)
	require.NoError(t, err)
	require.Equal(t, src.Dim, s.Dim())
	require.Equal(t, src.Nbits, s.Header().Nbits)
	require.Equal(t, src.K, s.Header().Centroids)
	require.Equal(t, src.Centroids, s.Quantizer().Centroids())
	var codes []uint32
	var residuals []byte
	for b, err := range src.Blocks(context.Background(), 1000) {
		require.NoError(t, err)
		codes = append(codes, b.Codes...)
		residuals = append(residuals, b.Residuals...)
	}
	row, at, rb := 0, 0, src.RowBytes()
	for i := range s.Chunks() {
		ch, err := s.Chunk(i, storage.All)
		require.NoError(t, err)
		first, _ := s.ChunkDocs(i)
		for d := range ch.Docs() {
			if !s.Live(first + uint32(d)) {
				continue
			}
			lo, hi := int(ch.Offsets[d]), int(ch.Offsets[d+1])
			require.EqualValues(t, src.DocLens[row], hi-lo, "document %d", row)
			for j := lo; j < hi; j++ {
				if codes[at+j-lo] != ch.Code(j) {
					require.Fail(t, "other code", "document %d, token %d", row, j-lo)
				}
			}
			require.Equal(t, residuals[at*rb:(at+hi-lo)*rb], append([]byte{}, ch.Residuals[lo*rb:hi*rb]...), "document %d", row)
			row++
			at += hi - lo
		}
	}
	require.Equal(t, len(src.DocLens), row)
	require.Equal(t, len(codes), at)
}

func TestImport(t *testing.T) {
	for _, c := range []struct {
		engine string
		docs   int
		dir    []string // beside the checkout; none: a small one in it
	}{
		{interop.EngineColBERT, 46, nil},
		{interop.EngineFastPlaid, 46, nil},
		{interop.EngineNextPlaid, 46, nil},
		{interop.EngineColBERT, 500, []string{"data", "lotte-500", "plaid-index"}},
		{interop.EngineNPY, 500, []string{"data", "lotte-500", "plaid-npy"}},
		{interop.EngineFastPlaid, 150, []string{"golden", "fast-plaid-nbits2"}},
		{interop.EngineNextPlaid, 150, []string{"golden", "next-plaid-nbits2"}},
	} {
		t.Run(fmt.Sprint(c.engine, " ", c.docs), func(t *testing.T) {
			dir := filepath.Join("interop", "testdata", "real", c.engine)
			if c.dir != nil {
				if !effort.Long() {
					t.Skip("the small ones are read in the same way")
				}
				dir = realdata.Path(t, c.dir...)
			}
			before := fingerprint(t, dir)
			path := newPath(t)
			r, err := Import(context.Background(), dir, path, &ImportOptions{VerifyIVF: true})
			require.NoError(t, err)
			require.Equal(t, before, fingerprint(t, dir), "the source was touched")
			require.Equal(t, c.engine, r.Engine)
			require.Equal(t, c.docs, r.Docs)
			require.Zero(t, r.Clamped)
			require.Less(t, r.WeightChange, 2e-6)
			if r.WeightChange > 0 {
				require.NotEqual(t, r.WeightBefore, r.WeightAfter)
			}
			reading(t, path, func(s *Snapshot) {
				require.NoError(t, s.Verify(context.Background()))
				require.Equal(t, "0", s.ID(0))
				require.InDelta(t, r.WeightChange, s.Header().Build.WeightChange, 1e-12)
				require.EqualValues(t, r.Tokens, s.State().LiveTokens)
				requireSameTokens(t, s, dir)
			})
			for _, threads := range []int{1, 3} {
				again := newPath(t)
				_, err = Import(context.Background(), dir, again, &ImportOptions{Threads: threads})
				require.NoError(t, err)
				require.Equal(t, digestOf(t, path), digestOf(t, again))
			}
		})
	}
}

// exported makes an engine's folder from made-up documents, so that import is
// tested without real data, too.
func exported(t *testing.T, docs []vectors.Document, dim int) (dir string) {
	path := newPath(t)
	build(t, path, dim, docs, &BuildOptions{Centroids: 30, Nbits: 4, NoDimScales: true, NoCentroidScales: true})
	dir = filepath.Join(t.TempDir(), "engine")
	reading(t, path, func(s *Snapshot) { require.NoError(t, second(s.ExportEngine(context.Background(), dir, nil))) })
	return dir
}

func TestImportOptions(t *testing.T) {
	docs := corpus(40, 6, 16, 3)
	dir := exported(t, docs, 16)
	var ids []string
	for _, d := range docs {
		ids = append(ids, d.ID)
	}
	path := newPath(t)
	r, err := Import(context.Background(), dir, path, &ImportOptions{
		IDs: ids,
		Payload: func(row int, id string) ([]byte, error) {
			require.Equal(t, ids[row], id)
			return docs[row].Payload, nil
		},
	})
	require.NoError(t, err)
	reading(t, path, func(s *Snapshot) {
		require.NoError(t, s.Verify(context.Background()))
		empty := 0
		for i, d := range docs {
			require.Equal(t, d.ID, s.ID(uint32(i)))
			p, err := s.Payload(uint32(i))
			require.NoError(t, err)
			require.Equal(t, d.Payload, p)
			if len(d.Tokens) == 0 {
				empty++
			}
		}
		require.Equal(t, empty, r.Empty)
		requireSameTokens(t, s, dir)
	})

	// Additions are encoded with the codec that came along.
	ix := writing(t, path)
	more := corpus(60, 6, 16, 4)[40:]
	add(t, ix, 16, more...)
	s := taken(t, ix)
	require.NoError(t, s.Verify(context.Background()))
	for i, d := range more {
		require.NoError(t, differsDoc(s, s.Quantizer(), uint32(40+i), d))
	}
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())

	_, err = Import(context.Background(), dir, path, nil)
	require.ErrorIs(t, err, storage.ErrExists)
	_, err = Import(context.Background(), dir, path, &ImportOptions{Force: true})
	require.NoError(t, err)
	reading(t, path, func(s *Snapshot) { requireSameTokens(t, s, dir) })
}

func TestImportErrors(t *testing.T) {
	docs := corpus(40, 6, 16, 3)
	dir := exported(t, docs, 16)
	out := t.TempDir()
	path := filepath.Join(out, "x.plaid")
	failing := func(dir string, o *ImportOptions, want error) {
		t.Helper()
		ctx := context.Background()
		_, err := Import(ctx, dir, path, o)
		require.ErrorIs(t, err, want)
		requireFiles(t, out, 0)
	}
	failing(dir, &ImportOptions{IDs: []string{"a"}}, vectors.ErrID)
	same := make([]string, 40)
	for i := range same {
		same[i] = fmt.Sprint(i)
	}
	same[30] = "7"
	failing(dir, &ImportOptions{IDs: same}, ErrDuplicateID)
	same[30] = ""
	failing(dir, &ImportOptions{IDs: same}, vectors.ErrID)
	failing(dir, &ImportOptions{Payload: func(row int, _ string) ([]byte, error) {
		return nil, map[int]error{20: os.ErrDeadlineExceeded}[row]
	}}, os.ErrDeadlineExceeded)
	for _, payload := range []string{`{"_passage":{"of":"x","n":0,"start":0,"end":1}}`, `{"image":"x.png","grid":{"rows":9,"cols":9}}`} { // which cannot be
		failing(dir, &ImportOptions{Payload: func(row int, _ string) ([]byte, error) {
			return map[int][]byte{20: []byte(payload)}[row], nil
		}}, vectors.ErrFormat)
	}
	failing(dir, &ImportOptions{Unchanged: func() error { return os.ErrDeadlineExceeded }}, os.ErrDeadlineExceeded)
	failing(out, nil, interop.ErrNotIndex)
	failing(filepath.Join(out, "none"), nil, fs.ErrNotExist)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Import(ctx, dir, path, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, path)

	// Every file of the folder in turn is cut short, or gone.
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	failed := 0
	for _, e := range entries {
		broken := filepath.Join(t.TempDir(), "broken")
		require.NoError(t, os.CopyFS(broken, os.DirFS(dir)))
		name := filepath.Join(broken, e.Name())
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(name, info.Size()*2/3))
		_, err = Import(context.Background(), broken, path, nil)
		if err != nil {
			failed++
			require.NoFileExists(t, path)
			require.NoFileExists(t, path+".rewrite.tmp")
			continue
		}
		require.NoError(t, os.Remove(path)) // a file that import makes no use of
	}
	require.Greater(t, failed, 4)
}

func TestExportEngine(t *testing.T) {
	const dim = 16
	docs := corpus(60, 6, dim, 3)
	for _, nbits := range []int{8, 2, 1, 4}[:effort.Cases(2, 4)] {
		path := newPath(t)
		build(t, path, dim, docs, &BuildOptions{Centroids: 30, Nbits: nbits, NoDimScales: true, NoCentroidScales: true})
		ix := writing(t, path)
		for _, change := range []func(){
			func() {},
			func() { add(t, ix, dim, corpus(80, 6, dim, 4)[60:]...) },
			func() {
				_, _, err := ix.Delete(context.Background(), []string{"d1", "d2", "d59", "d60"})
				require.NoError(t, err)
			},
			func() { require.NoError(t, ix.Compact(context.Background(), nil)) },
		} {
			change()
			s := taken(t, ix)
			dir := filepath.Join(t.TempDir(), "out")
			require.NoError(t, second(s.ExportEngine(context.Background(), dir, nil)))
			requireSameTokens(t, s, dir)
			ids, err := os.ReadFile(filepath.Join(dir, "ids.txt"))
			require.NoError(t, err)
			live, _, err := s.idsAndLengths(context.Background(), liveDocs(s.fileSnapshot))
			require.NoError(t, err)
			require.Equal(t, strings.Join(live, "\n")+"\n", string(ids))

			back := newPath(t)
			r, err := Import(context.Background(), dir, back, &ImportOptions{IDs: live, VerifyIVF: true})
			require.NoError(t, err)
			require.Empty(t, r.Warnings)
			reading(t, back, func(b *Snapshot) {
				require.NoError(t, b.Verify(context.Background()))
				requireSameTokens(t, b, dir)
				// Uniform weights on the grid: decoded vectors move no more than that.
				for ordinal := range s.State().Docs {
					if !s.Live(ordinal) {
						continue
					}
					o, ok, err := b.Ordinal(s.ID(ordinal))
					require.NoError(t, err)
					require.True(t, ok)
					require.InDeltaSlice(t, must(s.Vectors(ordinal)), must(b.Vectors(o)), 0.01)
				}
			})
			require.ErrorIs(t, second(s.ExportEngine(context.Background(), dir, nil)), fs.ErrExist)
			require.NoError(t, s.Close())
		}
		require.NoError(t, ix.Close())
	}
	path := newPath(t)
	build(t, path, dim, docs, nil)
	reading(t, path, func(s *Snapshot) {
		dir := filepath.Join(t.TempDir(), "out")
		err := second(s.ExportEngine(context.Background(), dir, nil))
		require.ErrorIs(t, err, interop.ErrUnsupported)
		require.ErrorContains(t, err, "cannot store scales of residuals")
		require.NoFileExists(t, dir)
	})
}

// An exported folder, read back, has the same documents: ids, lengths,
// payloads, and vectors that encode to what they were decoded from.
func TestExport(t *testing.T) {
	const dim = 16
	docs := corpus(60, 6, dim, 3)
	docs[4].Payload = []byte("{\"id\":\"d4\",\n \"text\":\"two lines\"}")
	docs[5].Payload = []byte(`{"text":"no id"}`)
	docs[6].Payload = []byte(`{"id":"d7","text":"id of another"}`)
	docs[7].Payload = []byte("plain text\nof two lines")
	docs[8].Payload = []byte(`[1,2]`)
	docs[9].Payload = []byte(`{}`)
	docs[11].Payload = []byte("\"\xff\"")
	docs[10].ID = "12"
	docs[10].Payload = []byte(`{"id":12}`)
	path := newPath(t)
	build(t, path, dim, docs, &BuildOptions{Nbits: 8, Centroids: 30})
	ix := writing(t, path)
	_, _, err := ix.Delete(context.Background(), []string{"d1", "d30"})
	require.NoError(t, err)
	live := append(append([]vectors.Document{docs[0]}, docs[2:30]...), docs[31:]...)
	s := taken(t, ix)
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.Mkdir(dir, 0o777)) // empty, so it may be there
	require.NoError(t, second(s.Export(context.Background(), dir, nil)))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode().Perm()&0o755, "others may read it")

	src, err := vectors.Open(context.Background(), vectors.Files{
		Vectors: filepath.Join(dir, "docs.npy"), Lengths: filepath.Join(dir, "doclens.npy"),
		IDs: filepath.Join(dir, "ids.txt"), Payload: filepath.Join(dir, "metadata.jsonl"),
	})
	require.NoError(t, err)
	defer src.Close()
	changed := map[string]string{
		"d4": `{"id":"d4","text":"two lines"}`, "d5": `{"_id":"d5","text":"no id"}`,
		"d6": `{"_id":"d6","id":"d7","text":"id of another"}`,
		"d7": `{"_id":"d7","metadata":"plain text\nof two lines"}`, "d8": `{"_id":"d8","metadata":[1,2]}`, "d9": `{"_id":"d9","metadata":{}}`,
		"d11": `{"_id":"d11","metadata":"�"}`,
	}
	i := 0
	for d, err := range src.Docs(context.Background(), 0, src.Len()) {
		require.NoError(t, err)
		w := live[i]
		i++
		require.Equal(t, w.ID, d.ID)
		require.Len(t, d.Tokens, len(w.Tokens))
		if text, ok := changed[w.ID]; ok {
			require.Equal(t, text, string(d.Payload))
			require.True(t, json.Valid(d.Payload))
		} else {
			require.Equal(t, string(w.Payload), string(d.Payload))
		}
		ordinal, _, err := s.Ordinal(d.ID)
		require.NoError(t, err)
		if len(w.Tokens) > 0 {
			require.Equal(t, must(s.Vectors(ordinal)), d.Tokens, "float32 as decoded")
		}
	}
	require.Equal(t, len(live), i)

	rebuilt := newPath(t)
	_, err = Build(context.Background(), rebuilt, src, &BuildOptions{Codec: s.Quantizer()})
	require.NoError(t, err)
	reading(t, rebuilt, func(r *Snapshot) {
		require.NoError(t, r.Verify(context.Background()))
		require.Equal(t, len(live), r.Len())
		require.Equal(t, s.State().LiveTokens, r.State().LiveTokens)
	})

	require.ErrorIs(t, second(s.Export(context.Background(), dir, nil)), fs.ErrExist)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fresh := filepath.Join(filepath.Dir(dir), "fresh")
	require.ErrorIs(t, second(s.Export(ctx, fresh, nil)), context.Canceled)
	requireFiles(t, filepath.Dir(dir), 1)
}

func TestExportWithoutPayload(t *testing.T) {
	path := newPath(t)
	build(t, path, 4, []vectors.Document{{ID: "a", Tokens: corpusTokens(2, 4)}}, nil)
	dir := filepath.Join(t.TempDir(), "out")
	// What an export left that was killed is removed, a link to an empty folder stays.
	left := filepath.Join(filepath.Dir(dir), "real.plaid-partial-0123456789abcdef")
	require.NoError(t, os.MkdirAll(filepath.Join(left, "x"), 0o777))
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(dir), "real"), 0o777))
	if runtime.GOOS != "windows" {
		require.NoError(t, os.Symlink("real", dir))
	}
	reading(t, path, func(s *Snapshot) { require.NoError(t, second(s.Export(context.Background(), dir, nil))) })
	if runtime.GOOS != "windows" { // where folders cannot be locked, and links are not for everybody
		require.NoDirExists(t, left)
		link, err := os.Readlink(dir)
		require.NoError(t, err)
		require.Equal(t, "real", link)
	}
	require.FileExists(t, filepath.Join(dir, "docs.npy"))
	require.NoFileExists(t, filepath.Join(dir, "metadata.jsonl"))
}

func TestImportLeavesItsSourceAlone(t *testing.T) {
	dir := t.TempDir()
	require.True(t, isInside(filepath.Join(dir, "x.plaid"), dir))
	require.True(t, isInside(filepath.Join(dir, "a", "x.plaid"), dir))
	require.False(t, isInside(dir+".plaid", dir))
	require.False(t, isInside(filepath.Join(dir, "..", "x.plaid"), dir))
	src := realdata.Path(t, "data", "lotte-500", "plaid-npy")
	_, err := Import(context.Background(), src, filepath.Join(src, "x.plaid"), nil)
	require.ErrorIs(t, err, ErrOption)
}
