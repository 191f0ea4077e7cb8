package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/objectstest"
)

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

// A put that has made its object succeeds, also where the answer is lost and the client, or the system, asks again and
// is refused; any other put of the name is ErrExists.
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

// Leftovers of an interrupted Put of a folder go when they are old; objects stay, and so do files that a Put is
// writing.
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

// A list does not show the temporary files of Replace.
func TestReplaceShowsObjectsAlone(t *testing.T) {
	ctx := t.Context()
	s, err := OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for range effort.Cases(50, 500) {
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

func BenchmarkFolderPut(b *testing.B) {
	s, err := OpenFolder(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for i := range b.N {
		if err := putText(s, fmt.Sprintf("log/%016x", i), "an entry of a log"); err != nil {
			b.Fatal(err)
		}
	}
}
