package objects

import (
	"bytes"
	"context"
	"encoding/xml"
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
)

// bucket is as much of an S3 service as the client needs.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte
	// fail answers so many requests with 503.
	fail int
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail > 0 {
		b.fail--
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
		return
	}
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if name != "shelf" {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	_, there := b.objects[key]
	switch {
	case r.Method == http.MethodGet && key == "" && r.URL.Query().Has("location"):
		fmt.Fprint(w, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></LocationConstraint>`)
	case r.Method == http.MethodGet && key == "":
		type entry struct{ Key string }
		list := struct {
			XMLName     xml.Name `xml:"ListBucketResult"`
			IsTruncated bool
			Contents    []entry
		}{}
		for k := range b.objects {
			if strings.HasPrefix(k, r.URL.Query().Get("prefix")) {
				list.Contents = append(list.Contents, entry{k})
			}
		}
		_ = xml.NewEncoder(w).Encode(list)
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(unchunked(r))
		if err != nil {
			refuse(w, http.StatusBadRequest, "IncompleteBody")
			return
		}
		if there && r.Header.Get("If-None-Match") == "*" {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		b.objects[key] = body
		w.Header().Set("ETag", `"e"`)
	case r.Method == http.MethodDelete:
		delete(b.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		http.ServeContent(w, r, "", timeZero, bytes.NewReader(b.objects[key]))
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func open(t *testing.T, kind string) (Store, *bucket) {
	t.Helper()
	if kind == "folder" {
		s, err := OpenFolder(filepath.Join(t.TempDir(), "store"))
		if err != nil {
			t.Fatal(err)
		}
		return s, nil
	}
	b := &bucket{objects: map[string][]byte{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	s, err := Open("s3://shelf/some/where?region=us-east-1&endpoint=" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

func TestStores(t *testing.T) {
	for _, kind := range []string{"folder", "s3"} {
		t.Run(kind, func(t *testing.T) {
			ctx := context.Background()
			s, b := open(t, kind)
			put := func(name, text string) error { return s.Put(ctx, name, strings.NewReader(text), int64(len(text))) }
			if err := errors.Join(put("a/b", "first"), put("a/c", ""), put("ab", "x")); err != nil {
				t.Fatal(err)
			}
			if b != nil {
				b.fail = 1 // is tried again by the client
			}
			if err := put("a/b", "second"); !errors.Is(err, ErrExists) {
				t.Errorf("replaced: %v", err)
			}
			for _, name := range []string{"", "/a", "a/../b", "../x", ".hidden", "a//b", "ä", "a b"} {
				if err := put(name, "x"); !errors.Is(err, ErrName) {
					t.Errorf("name %q: %v", name, err)
				}
			}
			r, err := s.Get(ctx, "a/b")
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if string(text) != "first" || err != nil {
				t.Errorf("%q %v", text, err)
			}
			_ = r.Close()
			if _, err := s.Get(ctx, "no"); !errors.Is(err, ErrNotFound) {
				t.Errorf("missing: %v", err)
			}
			for prefix, want := range map[string][]string{"": {"a/b", "a/c", "ab"}, "a/": {"a/b", "a/c"}, "a": {"a/b", "a/c", "ab"}, "x/": nil} {
				if names, err := s.List(ctx, prefix); err != nil || !slices.Equal(names, want) {
					t.Errorf("list %q: %q %v", prefix, names, err)
				}
			}
			if err := errors.Join(s.Delete(ctx, "a/b"), s.Delete(ctx, "a/b")); err != nil {
				t.Error(err)
			}
			if _, err := s.Get(ctx, "a/b"); !errors.Is(err, ErrNotFound) {
				t.Errorf("deleted: %v", err)
			}
		})
	}
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
			if err := Fetch(ctx, s, ref, to); err != nil {
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
				b.objects["some/where/x/file"][7] ^= 1
			} else {
				file := filepath.Join(s.(*Folder).dir, "x", "file")
				content[7] ^= 1
				_ = os.WriteFile(file, content, 0o600)
			}
			if err := Fetch(ctx, s, ref, filepath.Join(dir, "damaged")); !errors.Is(err, ErrDamaged) {
				t.Errorf("damaged: %v", err)
			}
			if err := Verify(ctx, s, ref); !errors.Is(err, ErrDamaged) {
				t.Errorf("damaged: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "damaged")); err == nil {
				t.Error("a damaged file is there")
			}
		})
	}
}

// Of many that put one name, one succeeds: maps depend on it.
func TestOneWins(t *testing.T) {
	for _, kind := range []string{"folder", "s3"} {
		t.Run(kind, func(t *testing.T) {
			s, _ := open(t, kind)
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					text := fmt.Sprint(i)
					errs[i] = s.Put(context.Background(), "one", strings.NewReader(text), int64(len(text)))
				})
			}
			wg.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else if !errors.Is(err, ErrExists) {
					t.Error(err)
				}
			}
			if won != 1 {
				t.Errorf("%d won", won)
			}
		})
	}
}
