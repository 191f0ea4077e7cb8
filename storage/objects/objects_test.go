package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/storage/objects/objectstest"
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
	r, _, err := s.Get(ctx, "a/b", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if string(text) != "first" || err != nil {
		t.Errorf("%q %v", text, err)
	}
	_ = r.Close()
	if _, _, err := s.Get(ctx, "no", 0, -1); !errors.Is(err, ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	for prefix, want := range map[string][]string{"": {"a/b", "a/c", "ab"}, "a/": {"a/b", "a/c"}, "a": {"a/b", "a/c", "ab"}, "x/": nil} {
		if names := namesOf(t, s, prefix); !slices.Equal(names, want) {
			t.Errorf("list %q: %q", prefix, names)
		}
	}
	if err := errors.Join(s.Delete(ctx, "a/b"), s.Delete(ctx, "a/b")); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Get(ctx, "a/b", 0, -1); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted: %v", err)
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
					errs[i] = putText(s, "one", text)
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

func namesOf(t *testing.T, s Store, prefix string) (names []string) {
	t.Helper()
	entries, err := s.List(context.Background(), prefix, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

// faults are those of the next requests, one after the other.
func faults(next ...objectstest.Fault) func(*http.Request) objectstest.Fault {
	return func(*http.Request) (f objectstest.Fault) {
		if len(next) > 0 {
			f, next = next[0], next[1:]
		}
		return f
	}
}

// Whoever has made an object hears so, also where the answer is lost and the client, or
// the system, asks again and is refused; everybody else hears that it is there.
func TestOwnPutsAreRecognised(t *testing.T) {
	for _, fault := range []objectstest.Fault{objectstest.Busy, objectstest.Lost} {
		s, b := open(t, "s3")
		b.After = faults(fault)
		ownPut(t, s, "maps/c/1")
	}
	s, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.link = func(from, to string) error { // NFS, asked twice
		_ = os.Link(from, to)
		return os.Link(from, to)
	}
	ownPut(t, s, "maps/c/1")
	s.link = func(from, to string) error { // the file that it was written to cannot be removed
		return errors.Join(os.Link(from, to), os.Remove(from), os.MkdirAll(filepath.Join(from, "in the way"), 0o755))
	}
	ownPut(t, s, "maps/c/2")
}

func ownPut(t *testing.T, s Store, name string) {
	t.Helper()
	ctx := context.Background()
	if err := putText(s, name, "mine"); err != nil {
		t.Errorf("its own object is taken for another's: %v", err)
	}
	for _, text := range []string{"mine", "its"} { // by another, even with the same content
		if err := putText(s, name, text); !errors.Is(err, ErrExists) {
			t.Errorf("another's object: %v", err)
		}
	}
	r, _, err := s.Get(ctx, name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if text, err := io.ReadAll(r); string(text) != "mine" || err != nil {
		t.Errorf("%q %v", text, err)
	}
}

// What an interrupted Put of a folder has left goes when it is old; objects stay, and so
// does what a Put is writing.
func TestLeftoversOfPuts(t *testing.T) {
	ctx := context.Background()
	s, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := putText(s, "a/b", "x"); err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(s.dir, "a", putPrefix+"1"), filepath.Join(s.dir, putPrefix+"2")
	for _, file := range []string{old, young} {
		if err := os.WriteFile(file, []byte("y"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ago := time.Now().Add(-time.Hour)
	for _, file := range []string{old, filepath.Join(s.dir, "a", "b")} {
		if err := os.Chtimes(file, ago, ago); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.RemoveLeftovers(ctx, time.Now().Add(-time.Minute)); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("the old one is there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
	if names := namesOf(t, s, ""); !slices.Equal(names, []string{"a/b"}) {
		t.Error(names)
	}
}

// What Replace is making, or was when its process was killed, is no object.
func TestReplaceShowsObjectsAlone(t *testing.T) {
	ctx := t.Context()
	s, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for range 200 {
			if _, err := s.Replace(ctx, "nodes/one", []byte("x")); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		entries, err := s.List(ctx, "nodes/", "", 0)
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name != "nodes/one" {
			t.Error(entries, err)
			return // the rest of the writes goes with the folder
		}
	}
}
