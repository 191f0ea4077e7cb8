package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/objectstest"
)

// server opens stores at a real S3 server: with faults of the network, and without.
func server(t *testing.T) (network *objectstest.Faulty, s, direct Store) {
	t.Helper()
	if !effort.Long() {
		t.Skip("builds and starts an S3 server")
	}
	network, address, plain := objectstest.OpenServer(t)
	s, err := Open(address)
	if err != nil {
		t.Fatal(err)
	}
	if direct, err = Open(plain); err != nil {
		t.Fatal(err)
	}
	return network, s, direct
}

// A real server does what a store has to, also where answers are lost; and objects that
// are put in parts are not replaced either.
func TestServer(t *testing.T) {
	network, s, direct := server(t)
	t.Run("store", func(t *testing.T) {
		testStore(t, s, network)
		if err := s.Delete(context.Background(), "a/c"); err != nil {
			t.Error(err)
		}
		if err := s.Delete(context.Background(), "ab"); err != nil {
			t.Error(err)
		}
		testLists(t, s)
	})
	for i, fault := range []objectstest.Fault{objectstest.Busy, objectstest.Broken, objectstest.Lost, objectstest.Cut} {
		network.After = faults(fault)
		ownPut(t, s, fmt.Sprint("own/", i))
	}
	ctx := context.Background()
	large := bytes.Repeat([]byte("0123456789abcdef"), (partSize+partSize/2)/16)
	for i, fault := range []objectstest.Fault{objectstest.None, objectstest.Busy, objectstest.Lost} {
		name := fmt.Sprint("large/", i)
		var ended sync.Once
		network.After = func(r *http.Request) (f objectstest.Fault) {
			if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
				ended.Do(func() { f = fault })
			}
			return f
		}
		if _, err := s.Put(ctx, name, bytes.NewReader(large), int64(len(large))); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(ctx, name, bytes.NewReader(large), int64(len(large)-1)); !errors.Is(err, ErrExists) {
			t.Errorf("replaced: %v", err)
		}
		r, _, err := direct.Get(ctx, name, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); !bytes.Equal(got, large) || err != nil {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
		_ = r.Close()
		file := filepath.Join(t.TempDir(), "file")
		if err := Fetch(ctx, s, name, int64(len(large)), file); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); !bytes.Equal(got, large) {
			t.Error("another file is fetched")
		}
	}
}

// Parts that were never put together go when they are old, and those of a younger attempt
// at the same name stay.
func TestLeftoversOfServer(t *testing.T) {
	_, s, direct := server(t)
	ctx := context.Background()
	bucket := s.(*S3)
	core := bucket.client
	begin := func() string {
		id, err := core.NewMultipartUpload(ctx, bucket.bucket, bucket.prefix+"a/b", minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := core.PutObjectPart(ctx, bucket.bucket, bucket.prefix+"a/b", id, 1, strings.NewReader("part"), 4,
			minio.PutObjectPartOptions{}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	begin()
	time.Sleep(1100 * time.Millisecond) // the server tells whole seconds
	between := time.Now()
	time.Sleep(1100 * time.Millisecond)
	young := begin()
	if n, err := s.RemoveLeftovers(ctx, between); n != 1 || err != nil {
		t.Errorf("%d are removed: %v", n, err)
	}
	if _, err := core.ListObjectParts(ctx, bucket.bucket, bucket.prefix+"a/b", young, 0, 10); err != nil {
		t.Errorf("the young one: %v", err)
	}
	if n, err := s.RemoveLeftovers(ctx, time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("%d are removed: %v", n, err)
	}
	if entries, err := direct.List(ctx, "", "", 0); len(entries) > 0 || err != nil {
		t.Error(entries, err)
	}
}

// With random faults of the network, at most one rival is told that it has made an object, that one has made it, and
// the object is there until it is deleted.
func TestServerAtRandom(t *testing.T) {
	network, s, direct := server(t)
	ctx := context.Background()
	chance := objectstest.NewChance(7, .08)
	network.Before, network.After = chance.Before, chance.After
	const rounds, rivals = 60, 3
	var made, failed int
	for i := range rounds {
		name := fmt.Sprint("race/", i)
		errs := make([]error, rivals)
		var wg sync.WaitGroup
		for k := range errs {
			wg.Go(func() {
				text := fmt.Sprint(k, strings.Repeat("x", rand.IntN(1000)))
				errs[k] = putText(s, name, text)
			})
		}
		wg.Wait()
		won := -1
		for k, err := range errs {
			switch {
			case err == nil && won >= 0:
				t.Fatalf("%s: %d and %d have made it", name, won, k)
			case err == nil:
				won = k
				made++
			case !errors.Is(err, ErrExists):
				failed++
			}
		}
		r, _, err := direct.Get(ctx, name, 0, -1)
		if won < 0 { // it is not known
			if err == nil {
				_ = r.Close()
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(r); err != nil || string(text[:1]) != fmt.Sprint(won) {
			t.Fatalf("%s: %.10s %v, %d has made it", name, text, err, won)
		}
		_ = r.Close()
		// A read gives the object that was put, or an error; a deletion succeeds, or is an error.
		if r, _, err := s.Get(ctx, name, 0, -1); err == nil {
			if text, err := io.ReadAll(r); err == nil && string(text[:1]) != fmt.Sprint(won) {
				t.Fatalf("%s: %.10s", name, text)
			}
			_ = r.Close()
		} else if errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if names, err := s.List(ctx, "race/", "", 0); err == nil &&
			!slices.ContainsFunc(names, func(e Entry) bool { return e.Name == name }) {
			t.Fatalf("%s is not in the list", name)
		}
		if i%2 == 0 && s.Delete(ctx, name) == nil {
			if _, _, err := direct.Get(ctx, name, 0, -1); !errors.Is(err, ErrNotFound) {
				t.Fatalf("%s was deleted: %v", name, err)
			}
		}
	}
	t.Logf("%d made, %d unknown; %s", made, failed, chance)
	if made < rounds/2 {
		t.Errorf("%d of %d objects were made", made, rounds)
	}
}
