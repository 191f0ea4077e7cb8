package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

const octets = "Content-Type: application/octet-stream"

// A backup goes through a connection, with its digest behind it, and makes an index that
// answers like the first.
func TestBackupAndRestore(t *testing.T) {
	s := startPets(t)
	r, err := http.Get(s.URL + "/indices/pets/backup")
	require.NoError(t, err)
	file, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, 200, r.StatusCode)
	require.Equal(t, `attachment; filename="pets.plaid"`, r.Header.Get("Content-Disposition"))
	sum := sha256.Sum256(file)
	digest := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	require.Equal(t, digest, r.Trailer.Get("Repr-Digest"))
	path := filepath.Join(t.TempDir(), "pets.plaid")
	require.NoError(t, os.WriteFile(path, file, 0o666))
	ix, err := index.Open(context.Background(), path, nil)
	require.NoError(t, err)
	require.NoError(t, ix.Verify(context.Background()))
	require.NoError(t, ix.Close())

	up := s.send(t, "PUT", "/indices/copy/backup", file, octets, "Repr-Digest: "+digest)
	require.Equal(t, 200, up.status, up.body)
	var one, two found
	body := object{"queries": list{query("cats sleep")}}
	s.ok(t, 200, "POST", "/indices/pets/search", body, &one)
	s.ok(t, 200, "POST", "/indices/copy/search", body, &two)
	require.Equal(t, one, two)
	s.ok(t, 202, "POST", "/indices/copy/update", object{"documents": list{query("more")}}, nil) // and grows on

	s.refused(t, 409, server.CodeIndexExists, "PUT", "/indices/pets/backup", file, octets)
	s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/a%2Fb/backup", file, octets)
	s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/new/backup", file, octets, "Repr-Digest: sha-256=:AAAA:")
	s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/new/backup", file, octets, "Repr-Digest: md5=:AAAA:")
	s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/new/backup", file[:len(file)/2], octets)
	s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/new/backup", "nonsense", octets)
	s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/new/backup", []byte{}, octets)
	for at := len(file) / 3; at < len(file); at += len(file) / 5 {
		hurt := bytes.Clone(file)
		hurt[at] ^= 0xff
		r := s.send(t, "PUT", "/indices/new/backup", hurt, octets)
		if r.status == 200 { // it was free space
			s.ok(t, 200, "DELETE", "/indices/new", nil, nil)
			continue
		}
		isProblem(t, r, server.CodeBadRequest)
	}
	s.refused(t, 404, server.CodeIndexNotFound, "GET", "/indices/new/stats", nil) // nothing is left of it
	s.refused(t, 404, server.CodeIndexNotFound, "GET", "/indices/new/backup", nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "declared"}, nil)
	require.Equal(t, 200, s.send(t, "PUT", "/indices/declared/backup", file, octets).status)
}

// engineFolder exports an index in the form of other engines, and packs it.
func engineFolder(t *testing.T, prefix string) []byte {
	ctx := context.Background()
	dir := t.TempDir()
	var docs []vectors.Document
	for _, p := range pets {
		docs = append(docs, vectors.Document{ID: p.id, Tokens: flat(p.text)})
	}
	src, err := vectors.FromDocuments(wordDim, docs)
	require.NoError(t, err)
	path := filepath.Join(dir, "x.plaid")
	_, err = index.Build(ctx, path, src, &index.BuildOptions{Nbits: 4, NoDimScales: true, NoCentroidScales: true})
	require.NoError(t, err)
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	folder := filepath.Join(dir, "folder")
	_, err = snap.ExportEngine(ctx, folder, nil)
	require.NoError(t, err)
	require.NoError(t, snap.Close())
	require.NoError(t, ix.Close())
	return packed(t, folder, prefix)
}

// packed is a folder as an archive.
func packed(t *testing.T, folder, prefix string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if d.IsDir() {
			return nil
		}
		name, err := filepath.Rel(folder, path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: prefix + filepath.ToSlash(name), Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}))
		_, err = w.Write(text)
		return err
	}))
	require.NoError(t, w.Close())
	return b.Bytes()
}

const tarType = "Content-Type: application/x-tar"

const sparseArchive = `H4sIAAAAAAACA+3Uz2oCMRDH8ZzzFPsE2ST7x172Wj2JID7AQHPYorYkCuLTG1YQ3YsXW7r0+7lMGAIhDL8x5UpOiyAfIaZS1I+w
WVvXQ83G1bra3c5D39lq1qjipH7BMR0k5ufV/+R9MV9uTPqWmILZyedX7Jwedft97lrt3X13L7vQia4ersYg29SfQ+ds/dbMWqsV
/jJT5umth+G999tgvK1a/+JF8CT/7n4XXPPvm6ZVhZ1S/sefmwinb0klqwAAAAAAAAAAAAAAABN0AXeq3lkAKAAA`

func TestImport(t *testing.T) {
	uploads := t.TempDir()
	s := start(t, nil, &server.Options{UploadDir: uploads})
	for name, prefix := range map[string]string{"flat": "", "below": "an-index/"} {
		r := s.send(t, "PUT", "/indices/"+name+"/import", engineFolder(t, prefix), tarType)
		require.Equal(t, 200, r.status, r.body)
		var f found
		s.ok(t, 200, "POST", "/indices/"+name+"/search", object{"queries": list{query("dogs bark")}}, &f)
		require.Equal(t, "b", f.Results[0].Metadata[0]["_id"])
	}
	next := t.TempDir()
	require.NoError(t, os.CopyFS(next, os.DirFS(filepath.Join("..", "index", "interop", "testdata", "real", "next-plaid"))))
	r := s.send(t, "PUT", "/indices/next/import", packed(t, next, ""), tarType)
	require.Equal(t, 200, r.status, r.body)
	require.NoError(t, os.WriteFile(filepath.Join(next, "metadata.db"), []byte("of another program"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(next, "ids.txt"), []byte("a\na\n"), 0o666))
	p := s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/new/import", packed(t, next, ""), tarType)
	require.Contains(t, p.Message, `ids.txt: line 2: bad id: "a" is the id of line 1 and line 2`)
	require.NotContains(t, p.Message, uploads)
	require.NoError(t, os.Remove(filepath.Join(next, "ids.txt")))
	p = s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/new/import", packed(t, next, ""), tarType)
	require.Contains(t, p.Message, "leave metadata.db out to import the documents without metadata")
	s.refused(t, 409, server.CodeIndexExists, "PUT", "/indices/flat/import", engineFolder(t, ""), tarType)
	s.refused(t, 415, server.CodeMediaType, "PUT", "/indices/new/import", engineFolder(t, ""), octets)

	pack := func(headers ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			h.Mode, h.Format = 0o644, tar.FormatPAX
			require.NoError(t, w.WriteHeader(&h))
			_, err := io.WriteString(w, strings.Repeat("x\n", int(h.Size/2)))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	whole := engineFolder(t, "")
	// A file of 10 MiB without content, packed by GNU tar with --sparse --format=posix.
	zipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(sparseArchive)))
	require.NoError(t, err)
	sparse, err := io.ReadAll(zipped)
	require.NoError(t, err)
	file := func(name string, size int64) tar.Header {
		return tar.Header{Name: name, Size: size, Typeflag: tar.TypeReg}
	}
	for name, c := range map[string]struct {
		archive []byte
		says    string
	}{
		"sparse":       {sparse, "sparse"},
		"empty":        {nil, ""},
		"text":         {[]byte("this is no archive, but a sentence that is long enough"), "no tar archive"},
		"cut":          {whole[:len(whole)*2/3], ""},
		"nothing":      {pack(), ""},
		"no index":     {pack(file("a.txt", 4)), ""},
		"outside":      {pack(file("../evil", 4)), "outside"},
		"absolute":     {pack(file("/evil", 4)), "outside"},
		"a link":       {pack(tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}), "no regular file"},
		"a hard link":  {pack(tar.Header{Name: "l", Linkname: "m", Typeflag: tar.TypeLink}), "no regular file"},
		"a device":     {pack(tar.Header{Name: "d", Typeflag: tar.TypeChar}), "no regular file"},
		"twice":        {pack(file("a", 2), file("a", 2)), "twice"},
		"below a file": {pack(file("a", 2), file("a/b", 2)), "below a file"},
		"a long name":  {pack(file(strings.Repeat("n", 300), 2)), "a name that is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.refused(t, 400, server.CodeBadRequest, "PUT", "/indices/new/import", c.archive, tarType)
			require.Contains(t, p.Message, c.says)
			require.NotContains(t, p.Message, uploads)
		})
	}
	s.refused(t, 404, server.CodeIndexNotFound, "GET", "/indices/new/stats", nil)
	left, err := os.ReadDir(uploads)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = os.Stat(filepath.Join(filepath.Dir(uploads), "evil"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestRecallAndVerify(t *testing.T) {
	s := start(t, nil, nil)
	s.addPets(t)
	var r struct {
		K      int
		Recall float64
		Worst  float64
		Lost   map[string]int
	}
	s.ok(t, 200, "POST", "/indices/pets/recall", object{"queries": list{query("cats sleep"), query("dogs")}, "params": object{"top_k": 2}}, &r)
	require.Equal(t, 2, r.K)
	require.Equal(t, 1., r.Recall) // so small an index is scored in full
	require.Empty(t, r.Lost)
	s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/recall", object{"queries": list{}})
	s.refused(t, 400, server.CodeDimension, "POST", "/indices/pets/recall", object{"queries": list{object{"embeddings": list{list{1}}}}})
	s.ok(t, 200, "POST", "/indices/pets/verify", nil, nil)
	s.refused(t, 404, server.CodeIndexNotFound, "POST", "/indices/none/verify", nil)
	var trained object
	s.ok(t, 200, "POST", "/indices/pets/retrain", nil, &trained)
	require.Equal(t, 3., trained["docs"])
	f := s.search(t, "", object{"queries": list{query("dogs bark")}})
	require.Equal(t, uint32(1), f.Results[0].Documents[0]) // ordinals have not moved
}

// elsewhere are the collections of a folder, of which the service does not know that they are.
type elsewhere struct {
	collection.Catalog
	fault error
}

func (e *elsewhere) Ready() error { return e.fault }

func (e *elsewhere) Get(name string) (collection.Collection, error) {
	c, err := e.Catalog.Get(name)
	if err != nil {
		return nil, err
	}
	return bare{c}, nil
}

// bare is a collection that does what all do, and nothing beside that.
type bare struct{ collection.Collection }

func (b bare) Snapshot(ctx context.Context) (collection.Snapshot, error) {
	v, err := b.Collection.Snapshot(ctx)
	return struct{ collection.Snapshot }{v}, err
}

// A service over any collections does what their interface has, and says of the rest that it
// does not.
func TestCollectionsElsewhere(t *testing.T) {
	e := &elsewhere{Catalog: openStore(t, nil).Catalog()}
	h, err := server.New(e, words{}, nil)
	require.NoError(t, err)
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	s := &service{Server: h, URL: web.URL}
	s.addPets(t)
	contract := readContract(t, s)
	found := s.search(t, "", object{"queries": list{query("dogs bark")}, "subset": list{0, 1, 7}, "filter_condition": "year > ?", "filter_parameters": list{2019}})
	require.Equal(t, []uint32{1}, found.Results[0].Documents)
	require.Equal(t, "dogs", found.Results[0].Metadata[0]["title"])
	found = s.search(t, "_with_encoding", object{"queries": list{"cats sleep"}, "params": object{"top_k": 1}})
	require.Equal(t, []uint32{0}, found.Results[0].Documents)
	for _, no := range []struct {
		method, path string
		body         any
	}{
		{"POST", "/indices/pets/search", object{"text_query": list{"cats"}}},
		{"POST", "/indices/pets/search", object{"queries": list{query("cats")}, "text_query": list{"cats"}}},
		{"POST", "/indices/pets/explain", object{"text": "cats", "id": "a"}},
		{"POST", "/indices/pets/facets", object{"fields": list{"year"}}},
		{"POST", "/indices/pets/recall", object{"queries": list{query("cats")}}},
		{"GET", "/indices/pets/backup", nil},
		{"POST", "/indices/pets/retrain", nil},
		{"POST", "/indices/pets/compact", nil},
		{"POST", "/indices/pets/verify", nil},
	} {
		r := s.send(t, no.method, no.path, no.body)
		require.Equal(t, 400, r.status, no.path)
		isProblem(t, r, server.CodeNotSupported)
		contract.answers(t, no.method, no.path, r)
	}
	r := s.send(t, "PUT", "/indices/pets/backup", "bytes", "Content-Type: application/octet-stream")
	isProblem(t, r, server.CodeNotSupported)
	contract.answers(t, "PUT", "/indices/pets/backup", r)
	r = s.send(t, "PUT", "/indices/pets/import", "bytes", "Content-Type: application/x-tar")
	isProblem(t, r, server.CodeNotSupported)
	contract.answers(t, "PUT", "/indices/pets/import", r)

	s.ok(t, 200, "GET", "/readyz", nil, nil)
	e.fault = errors.New("out of reach")
	s.refused(t, 503, server.CodeBusy, "GET", "/readyz", nil)
	s.ok(t, 200, "GET", "/livez", nil, nil)
}
