package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/objectstest"
)

func open(t *testing.T, kind string) (Store, *objectstest.Bucket) {
	t.Helper()
	if kind == "folder" {
		s, err := OpenFolder(filepath.Join(t.TempDir(), "store"))
		if err != nil {
			t.Fatal(err)
		}
		return s, nil
	}
	b, address := objectstest.Open(t)
	s, err := Open(address)
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

func putText(s Store, name, text string) error {
	_, err := s.Put(context.Background(), name, strings.NewReader(text), int64(len(text)))
	return err
}

func TestStores(t *testing.T) {
	t.Run("folder", func(t *testing.T) { s, _ := open(t, "folder"); testStore(t, s, nil) })
	t.Run("s3", func(t *testing.T) { s, b := open(t, "s3"); testStore(t, s, &b.Faulty) })
}

// testStore tries a store; network is nil where none lies between.
func testStore(t *testing.T, s Store, network *objectstest.Faulty) {
	ctx := context.Background()
	put := func(name, text string) error { return putText(s, name, text) }
	if err := errors.Join(put("a/b", "first"), put("a/c", ""), put("ab", "x")); err != nil {
		t.Fatal(err)
	}
	if network != nil {
		network.Before = faults(objectstest.Busy) // is tried again by the client
	}
	if err := put("a/b", "second"); !errors.Is(err, ErrExists) {
		t.Errorf("replaced: %v", err)
	}
	for _, name := range []string{"", "/a", "a/../b", "../x", ".hidden", "a//b", "ä", "a b"} {
		if err := put(name, "x"); !errors.Is(err, ErrName) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	// Ranges: the entry is of the whole object, and what lies beyond it is not there.
	for _, c := range []struct {
		from, length int64
		want         string
	}{{0, -1, "first"}, {0, 5, "first"}, {0, 1, "f"}, {1, 2, "ir"}, {4, 1, "t"}, {2, -1, "rst"}, {3, 100, "st"},
		{0, 0, ""}, {5, 3, ""}, {5, -1, ""}, {9, -1, ""}} {
		r, e, err := s.Get(ctx, "a/b", c.from, c.length)
		if err != nil {
			t.Fatalf("%d, %d: %v", c.from, c.length, err)
		}
		text, err := io.ReadAll(r)
		if string(text) != c.want || err != nil || e.Name != "a/b" || e.Size != 5 || age(e.Made) > time.Minute {
			t.Errorf("%d, %d: %q %v %v", c.from, c.length, text, e, err)
		}
		_ = r.Close()
	}
	if b, e, err := Read(ctx, s, "a/b", 5); string(b) != "first" || e.Size != 5 || err != nil {
		t.Errorf("%q %v %v", b, e, err)
	}
	if _, _, err := Read(ctx, s, "a/b", 4); !errors.Is(err, ErrDamaged) {
		t.Errorf("too large: %v", err)
	}
	if b, e, err := Read(ctx, s, "a/c", 5); len(b) > 0 || e.Size != 0 || err != nil {
		t.Errorf("empty: %q %v %v", b, e, err)
	}
	for _, length := range []int64{-1, 0, 3} {
		if _, _, err := s.Get(ctx, "no", 0, length); !errors.Is(err, ErrNotFound) {
			t.Errorf("missing: %v", err)
		}
		if _, _, err := s.Get(ctx, "a", 0, length); !errors.Is(err, ErrNotFound) {
			t.Errorf("a folder: %v", err)
		}
	}
	for prefix, want := range map[string][]string{"": {"a/b", "a/c", "ab"}, "a/": {"a/b", "a/c"},
		"a": {"a/b", "a/c", "ab"}, "x/": nil} {
		if names := namesOf(t, s, prefix); !slices.Equal(names, want) {
			t.Errorf("list %q: %q", prefix, names)
		}
	}
	// Replace makes the whole newer object, with a later time.
	before, err := s.Replace(ctx, "r/beat", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := s.Replace(ctx, "r/beat", []byte("22"))
	if err != nil || after.Before(before) || age(after) > time.Minute {
		t.Errorf("%v, then %v: %v", before, after, err)
	}
	if b, e, err := Read(ctx, s, "r/beat", 5); string(b) != "22" || err != nil || e.Made.Sub(after) > time.Second {
		t.Errorf("%q %v %v", b, e, err)
	}
	if err := s.Delete(ctx, "r/beat"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Delete(ctx, "a/b"), s.Delete(ctx, "a/b")); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Get(ctx, "a/b", 0, -1); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
}

func age(made time.Time) time.Duration { return time.Since(made).Abs() }

// A list is in the order of the names, also over several folders, and begins and ends where it is told to.
func TestLists(t *testing.T) {
	for _, kind := range []string{"folder", "s3"} {
		t.Run(kind, func(t *testing.T) {
			s, _ := open(t, kind)
			testLists(t, s)
		})
	}
	// A folder that cannot be read is not looked into for a list of another.
	s, _ := open(t, "folder")
	if err := errors.Join(putText(s, "log/1/a", ""), putText(s, "log/2/a", "")); err != nil {
		t.Fatal(err)
	}
	f := s.(*Folder)
	if err := errors.Join(os.RemoveAll(filepath.Join(f.dir, "log", "2")),
		os.WriteFile(filepath.Join(f.dir, "log", "2"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if names := namesOf(t, s, "log/1/"); !slices.Equal(names, []string{"log/1/a"}) {
		t.Error(names)
	}
}

// A service that repeats a page of a list is an error, and not asked for ever.
func TestListRepeatsPage(t *testing.T) {
	s, b := open(t, "s3")
	b.Next = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>
			<Contents><Key>some/where/a</Key></Contents><Contents><Key>some/where/b</Key></Contents></ListBucketResult>`)
	})
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if got, err := s.List(ctx, "", "", 0); err == nil || ctx.Err() != nil {
		t.Errorf("%d objects, %v", len(got), err)
	}
}

func testLists(t *testing.T, s Store) {
	t.Helper()
	names := []string{"a-b", "a.c", "a/1", "a/2", "a/b/1", "a/b/2", "a/c", "a0", "b/1"}
	for _, name := range names {
		if err := putText(s, name, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b/", "a/b/2", "b", "c", "a/x/"} {
		for _, after := range append([]string{"", "a", "a/", "a/b", "a/b/", "a/bz", "z"}, names...) {
			for limit := range 5 {
				var want []string
				for _, name := range names {
					if strings.HasPrefix(name, prefix) && name > after && (limit == 0 || len(want) < limit) {
						want = append(want, name)
					}
				}
				entries, err := s.List(context.Background(), prefix, after, limit)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range entries {
					got = append(got, e.Name)
					if e.Size != int64(len(e.Name)) || age(e.Made) > time.Minute {
						t.Errorf("%v", e)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q after %q, %d: %q in place of %q", prefix, after, limit, got, want)
				}
			}
		}
	}
}

// A put, a get, a replacement and a deletion are one request each, and a list one for each 1,000 objects.
func TestRequests(t *testing.T) {
	s, b := open(t, "s3")
	ctx := context.Background()
	requests := 0
	b.Before = func(*http.Request) objectstest.Fault { requests++; return objectstest.None }
	count := func(what string, want int, err error) {
		t.Helper()
		if requests != want || err != nil {
			t.Errorf("%s: %d requests in place of %d: %v", what, requests, want, err)
		}
		requests = 0
	}
	for i := range 1003 {
		if err := putText(s, fmt.Sprintf("n/%04d", i), "x"); err != nil {
			t.Fatal(err)
		}
	}
	count("put", 1003, nil)
	_, _, err := Read(ctx, s, "n/0000", 10)
	count("get", 1, err)
	for limit, want := range map[int]int{1: 1, 1000: 1, 1001: 2, 0: 2} {
		of, err := s.List(ctx, "n/", "", limit)
		if n := min(max(limit, 1003*(1-min(limit, 1))), 1003); len(of) != n {
			t.Errorf("%d of %d are listed", len(of), n)
		}
		count(fmt.Sprint("list ", limit), want, err)
	}
	_, err = s.Replace(ctx, "n/0000", []byte("y"))
	count("replace", 1, err)
	count("delete", 1, s.Delete(ctx, "n/0000"))
}

// A request without a condition is sent again when a condition is said to have failed, and a list when its answer
// was cut.
func TestSentAgain(t *testing.T) {
	s, b := open(t, "s3")
	ctx := context.Background()
	if err := putText(s, "n/1", "x"); err != nil {
		t.Fatal(err)
	}
	list := func() error {
		listed, err := s.List(ctx, "n/", "", 0)
		if err == nil && (len(listed) == 0 || listed[0].Name != "n/1") {
			return fmt.Errorf("%v is listed", listed)
		}
		return err
	}
	refused, cut := []objectstest.Fault{objectstest.Refused}, []objectstest.Fault{objectstest.Cut, objectstest.Cut}
	for what, c := range map[string]struct {
		do            func() error
		before, after []objectstest.Fault
	}{
		"get":         {func() error { _, _, err := Read(ctx, s, "n/1", 10); return err }, refused, nil},
		"list":        {list, refused, nil},
		"replace":     {func() error { _, err := s.Replace(ctx, "n/2", []byte("y")); return err }, refused, nil},
		"delete":      {func() error { return s.Delete(ctx, "n/3") }, refused, nil},
		"list, twice": {list, nil, cut},
	} {
		requests := 0
		before := faults(c.before...)
		b.Before = func(r *http.Request) objectstest.Fault { requests++; return before(r) }
		b.After = faults(c.after...)
		if err := c.do(); err != nil || requests != 1+len(c.before)+len(c.after) {
			t.Errorf("%s: %d requests, %v", what, requests, err)
		}
	}
}

// The time of a put is by the clock of the service, after the object appeared: also where the answer is lost. In a
// folder it is not that of the file, which may have waited for its name.
func TestMade(t *testing.T) {
	s, b := open(t, "s3")
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	b.Now = func() time.Time { return now }
	for i, fault := range []objectstest.Fault{objectstest.None, objectstest.Busy, objectstest.Lost} {
		b.After = faults(fault)
		made, err := s.Put(context.Background(), fmt.Sprint(i), strings.NewReader("x"), 1)
		if err != nil || !made.Equal(now) {
			t.Errorf("%v: %v", made, err)
		}
	}
	if made, err := s.Replace(context.Background(), "0", nil); err != nil || !made.Equal(now) {
		t.Errorf("%v: %v", made, err)
	}
	f, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f.link = func(from, to string) error { // the process slept
		ago := time.Now().Add(-time.Hour)
		return errors.Join(os.Chtimes(from, ago, ago), os.Link(from, to))
	}
	made, err := f.Put(context.Background(), "a/b", strings.NewReader("x"), 1)
	if err != nil || age(made) > time.Minute {
		t.Errorf("%v: %v", made, err)
	}
	if _, e, err := f.Get(context.Background(), "a/b", 0, -1); err != nil || e.Made.After(made) {
		t.Error(e, err)
	}
}

// A refused put is ErrNotMade, and one whose outcome is unclear is not.
func TestNotMade(t *testing.T) {
	s, b := open(t, "s3")
	b.Before = faults(objectstest.Denied)
	if err := putText(s, "a", "x"); !errors.Is(err, ErrNotMade) {
		t.Error(err)
	}
	b.Before = nil
	// the put, a second one is refused, and the look is not answered
	b.After = faults(objectstest.Lost, objectstest.Lost, objectstest.Lost)
	if err := putText(s, "b", "x"); err != nil && errors.Is(err, ErrNotMade) {
		t.Error(err)
	}
	b.After, b.Before = nil, faults(objectstest.Busy, objectstest.Denied) // the first may come yet
	if err := putText(s, "c", "x"); err == nil || errors.Is(err, ErrNotMade) {
		t.Error(err)
	}
	f, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Put(context.Background(), "a", strings.NewReader("x"), 2); !errors.Is(err, ErrNotMade) {
		t.Error(err)
	}
	if err := putText(f, "b", "x"); err != nil {
		t.Fatal(err)
	}
	if err := putText(f, "b/c", "x"); !errors.Is(err, ErrNotMade) {
		t.Error(err)
	}
	f.link = func(string, string) error { return errors.New("no answer") }
	if err := putText(f, "c", "x"); err == nil || errors.Is(err, ErrNotMade) {
		t.Error(err)
	}
}

// A service that stands still, before its answer or in the middle of it, holds up a request and not what asks.
func TestStandingStill(t *testing.T) {
	var mu sync.Mutex
	tries := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		tries[r.URL.Path]++
		first := tries[r.URL.Path] == 1
		mu.Unlock()
		switch {
		case first && r.URL.Path == "/silent":
			<-r.Context().Done()
		case first:
			w.Header().Set("Content-Length", "2")
			_, _ = w.Write([]byte("a"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_, _ = w.Write([]byte("ab"))
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: &transport{http.DefaultTransport, 50 * time.Millisecond}}
	for _, path := range []string{"/silent", "/half"} {
		for try := range 2 {
			heard, ctx := withNotes(t.Context())
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
			answer, err := client.Do(r)
			var text []byte
			if err == nil {
				text, err = io.ReadAll(answer.Body)
				_ = answer.Body.Close()
			}
			if first := try == 0; errors.Is(err, errStalled) != first || first == (string(text) == "ab") || heard.requests.Load() != 1 {
				t.Errorf("%s, %d: %q %v", path, try, text, err)
			}
		}
	}
}

func TestAddresses(t *testing.T) {
	dir := t.TempDir()
	for _, address := range []string{dir, "file://" + filepath.ToSlash(dir),
		"file://localhost" + filepath.ToSlash(dir)} {
		if s, err := Open(address); err != nil || s.(*Folder).dir != dir {
			t.Errorf("%s: %v", address, err)
		}
	}
	s, err := Open("s3://bucket/a/b/?endpoint=http://127.0.0.1:9000/&region=eu-1")
	if err != nil || s.(*S3).bucket != "bucket" || s.(*S3).prefix != "a/b/" {
		t.Errorf("%v %v", s, err)
	}
	if s, err := Open("s3://bucket"); err != nil || s.(*S3).prefix != "" {
		t.Errorf("%v %v", s, err)
	}
	for _, address := range []string{"", "s3://", "s3:///a", "s3:/bucket", "s3:bucket", "file:/x", "gs://bucket",
		"http://host/x", "file://host/x", "file://", "s3://b?endpoint=host", "s3://b?endpoint=http://h/path",
		"s3://b?regoin=x", "s3://b?region=x&region=y", "s3://key:secret@b/x", "s3://b/x#y"} {
		if _, err := Open(address); !errors.Is(err, ErrAddress) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := Open("s3://bucket/a/../b"); !errors.Is(err, ErrName) {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	for _, address := range []string{"s3://b/p?endpoint=http://h:1&region=r", "s3://%zz", "s3://b/%2e%2e",
		"s3://b?endpoint=%"} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if !strings.HasPrefix(address, "s3://") { // others make folders
			return
		}
		if s, err := Open(address); err == nil && s.(*S3).prefix != "" &&
			CheckName(strings.TrimSuffix(s.(*S3).prefix, "/")) != nil {
			t.Errorf("%q has the prefix %q", address, s.(*S3).prefix)
		}
	})
}

func TestFiles(t *testing.T) {
	for _, kind := range []string{"folder", "s3"} {
		t.Run(kind, func(t *testing.T) {
			ctx := context.Background()
			s, b := open(t, kind)
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
			content := bytes.Repeat([]byte("0123456789"), 100_000)
			if err := os.WriteFile(from, content, 0o600); err != nil {
				t.Fatal(err)
			}
			ref, err := PutFile(ctx, s, "x/file", from)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := PutFile(ctx, s, "x/file", from); err != nil || again != ref {
				t.Errorf("the same once more: %v", err)
			}
			if err := FetchRef(ctx, s, ref, to); err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(to); !bytes.Equal(got, content) {
				t.Error("another file came back")
			}
			_ = os.WriteFile(from, append(content, 'x'), 0o600)
			if _, err := PutFile(ctx, s, "x/file", from); !errors.Is(err, ErrExists) {
				t.Errorf("another file under the name: %v", err)
			}
			// A bit of the object flips.
			if b != nil {
				b.Flip("some/where/x/file", 7)
			} else {
				file := filepath.Join(s.(*Folder).dir, "x", "file")
				content[7] ^= 1
				_ = os.WriteFile(file, content, 0o600)
			}
			if err := FetchRef(ctx, s, ref, filepath.Join(dir, "damaged")); !errors.Is(err, ErrDamaged) {
				t.Errorf("damaged: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "damaged")); err == nil {
				t.Error("a damaged file is there")
			}
			ref.Size = 1 << 62 // as a damaged map may say
			if err := FetchRef(ctx, s, ref, filepath.Join(dir, "large")); !errors.Is(err, ErrName) {
				t.Errorf("a size that nothing has: %v", err)
			}
		})
	}
}
