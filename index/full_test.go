//go:build linux

package index

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/vectors"
)

func init() {
	testenv.Children["file size"] = fileSizeChild
	testenv.Children["address space"] = addressSpaceChild
}

// child runs this binary as the process of that name.
func child(t *testing.T, name string, env ...string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), append(env, testenv.ChildVariable+"="+name)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

const fullDim = 8

// heavy documents have payload, so that few of them fill a file.
func heavy(prefix string, n, payload int) []vectors.Document {
	docs := corpus(n, 6, fullDim, uint64(n))
	for i := range docs {
		docs[i].ID = fmt.Sprint(prefix, i)
		docs[i].Payload = []byte(strings.Repeat(string(rune('a'+i%26)), payload))
	}
	docs[0].Tokens = corpusTokens(3, fullDim)
	return docs
}

// holds checks the documents of an open index.
func holds(ix *Index, docs []vectors.Document) error {
	s, err := ix.Snapshot()
	if err != nil {
		return err
	}
	return errors.Join(differs(s, docs), s.Verify(context.Background()), s.Close())
}

func fileHolds(path string, docs []vectors.Document) error {
	ix, err := Open(context.Background(), path, nil)
	if err != nil {
		return err
	}
	return errors.Join(holds(ix, docs), ix.Close())
}

func mustSource(docs []vectors.Document) vectors.Source {
	src, err := vectors.FromDocuments(fullDim, docs)
	if err != nil {
		panic(err)
	}
	return src
}

func TestDiskFullByLimit(t *testing.T) {
	require.Contains(t, child(t, "file size", "PLAID_TEST_PATH="+filepath.Join(testenv.RAMDir(t), "full.plaid")), "all held")
}

// fileSizeChild lets changes fail after more and more of them was written.
func fileSizeChild() error {
	signal.Ignore(syscall.SIGXFSZ)
	chunkBytes, transactionBytes = 2000, 4000
	path := os.Getenv("PLAID_TEST_PATH")
	var free syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &free); err != nil {
		return err
	}
	limit := func(size int64) error {
		l := free
		if size >= 0 {
			l.Cur = uint64(size)
		}
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l)
	}
	failed := map[string]int{}
	fullDisk := func(what string, err error) error {
		if err == nil {
			return nil
		}
		failed[what]++
		// bbolt drops the errno of some calls, but not its words.
		if !errors.Is(err, syscall.EFBIG) && !strings.Contains(err.Error(), syscall.EFBIG.Error()) {
			return fmt.Errorf("%s fails with: %w", what, err)
		}
		if !strings.Contains(err.Error(), path) {
			return fmt.Errorf("%s does not name the file: %w", what, err)
		}
		return nil
	}
	ctx := context.Background()
	base := heavy("base", 30, 1000)
	for _, room := range []int64{0, 4 << 10, 16 << 10, 40 << 10, 70 << 10, 100 << 10, 150 << 10} {
		// A first build.
		if err := limit(room); err != nil {
			return err
		}
		_, err := Build(ctx, path, mustSource(base), nil)
		if ferr := fullDisk("build", err); ferr != nil {
			return ferr
		}
		if err := limit(-1); err != nil {
			return err
		}
		if err != nil {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("a failed build leaves a file (%v)", err)
			}
			if _, err := Build(ctx, path, mustSource(base), nil); err != nil {
				return err
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		// A rebuild.
		if err := limit(info.Size() + room); err != nil {
			return err
		}
		other := heavy("other", 25, 3000)
		_, err = Build(ctx, path, mustSource(other), &BuildOptions{Force: true})
		if ferr := fullDisk("rebuild", err); ferr != nil {
			return ferr
		}
		if err := limit(-1); err != nil {
			return err
		}
		if err == nil {
			base = other
		}
		if err := fileHolds(path, base); err != nil {
			return fmt.Errorf("after a rebuild within %d bytes: %w", room, err)
		}
		// An addition with replacements, a deletion, and a compaction, on one
		// handle, which must be usable afterwards.
		ix, err := Open(context.Background(), path, &Options{Write: true})
		if err != nil {
			return err
		}
		if info, err = os.Stat(path); err != nil {
			return err
		}
		if err := limit(info.Size() + room); err != nil {
			return err
		}
		more := append(heavy("more", 20, 4000), base[3], base[4])
		now := append(append(append([]vectors.Document{}, base[:3]...), base[5:]...), more...)
		_, err = ix.Add(ctx, mustSource(more), &AddOptions{Replace: true})
		if ferr := fullDisk("add", err); ferr != nil {
			return ferr
		}
		if err == nil {
			base = now
		}
		if err := holds(ix, base); err != nil {
			return fmt.Errorf("after an addition within %d bytes: %w", room, err)
		}
		// Nothing may grow any more, or even be rewritten; and then all is well.
		if err := limit(1); err != nil {
			return err
		}
		_, err = ix.Add(ctx, mustSource(heavy("late", 5, 9000)), nil)
		if ferr := fullDisk("add at the limit", err); ferr != nil || err == nil {
			return errors.Join(ferr, errors.New("nothing could be written"))
		}
		_, _, err = ix.Delete(ctx, []string{base[1].ID})
		if ferr := fullDisk("delete", err); ferr != nil || err == nil {
			return errors.Join(ferr, errors.New("nothing could be written"))
		}
		err = ix.Compact(ctx, nil)
		if ferr := fullDisk("compact", err); ferr != nil || err == nil {
			return errors.Join(ferr, errors.New("nothing could be written"))
		}
		if _, err := os.Stat(path + ".rewrite.tmp"); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the failed rewrite is left: %v", err)
		}
		if err := holds(ix, base); err != nil {
			return err
		}
		if err := limit(-1); err != nil {
			return err
		}
		if _, _, err = ix.Delete(ctx, []string{base[1].ID}); err != nil {
			return err
		}
		base = append(append([]vectors.Document{}, base[:1]...), base[2:]...)
		last := heavy("last", 5, 9000)
		if _, err := ix.Add(ctx, mustSource(last), nil); err != nil {
			return fmt.Errorf("the same handle is of no use: %w", err)
		}
		base = append(base, last...)
		if err := errors.Join(holds(ix, base), ix.Compact(ctx, nil), holds(ix, base), ix.Close()); err != nil {
			return err
		}
		if err := errors.Join(fileHolds(path, base), os.Remove(path)); err != nil {
			return err
		}
		base = heavy("base", 30, 1000)
	}
	for _, what := range []string{"build", "rebuild", "add", "delete", "compact"} {
		if failed[what] == 0 {
			return fmt.Errorf("%s never failed: %v", what, failed)
		}
	}
	fmt.Println("all held", failed)
	return nil
}

// mount makes a file system in memory of a few pages.
func mount(t *testing.T, options string) string {
	dir := filepath.Join(t.TempDir(), "mnt")
	require.NoError(t, os.Mkdir(dir, 0o777))
	if err := syscall.Mount("plaid-test", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

func TestDiskFull(t *testing.T) {
	dir := mount(t, "size=512k")
	path := filepath.Join(dir, "full.plaid")
	ctx := context.Background()
	docs := heavy("base", 10, 4000)
	_, err := Build(ctx, path, mustSource(heavy("x", 100, 9000)), nil)
	require.Error(t, err)
	require.ErrorContains(t, err, "no space left")
	require.NoFileExists(t, path)

	build(t, path, fullDim, docs, nil)
	ix := writing(t, path)
	_, err = ix.Add(ctx, mustSource(heavy("more", 60, 9000)), nil)
	require.ErrorContains(t, err, "no space left")
	require.NoError(t, holds(ix, docs))
	filler := filepath.Join(dir, "filler")
	fill, err := os.Create(filler)
	require.NoError(t, err)
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	require.NoError(t, fill.Close())
	require.ErrorContains(t, ix.Compact(ctx, nil), "no space left")
	require.NoError(t, holds(ix, docs))
	require.NoError(t, os.Remove(filler))
	// The file keeps what the failed addition made it grow by, and uses it.
	more := heavy("more", 10, 4000)
	add(t, ix, fullDim, more...)
	require.NoError(t, holds(ix, append(docs, more...)))
	require.NoError(t, ix.Close())
	requireFile(t, path, append(docs, more...))
}

func TestReadOnlyFileSystem(t *testing.T) {
	dir := mount(t, "size=4m")
	path := filepath.Join(dir, "ro.plaid")
	docs := heavy("base", 10, 100)
	build(t, path, fullDim, docs, nil)
	if err := syscall.Mount("plaid-test", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("cannot be remounted read-only: %v", err)
	}
	requireFile(t, path, docs)
	_, err := Open(context.Background(), path, &Options{Write: true})
	require.ErrorIs(t, err, syscall.EROFS)
	require.ErrorContains(t, err, path)
	for _, p := range []string{path, filepath.Join(dir, "fresh.plaid")} {
		_, err = Build(context.Background(), p, mustSource(docs), &BuildOptions{Force: true})
		require.ErrorIs(t, err, syscall.EROFS)
		require.ErrorContains(t, err, p)
	}
	requireFile(t, path, docs)
}

func TestUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("permissions do not bind root")
	}
	path := filepath.Join(t.TempDir(), "no.plaid")
	build(t, path, fullDim, heavy("base", 3, 10), nil)
	require.NoError(t, os.Chmod(path, 0o444))
	_, err := Open(context.Background(), path, &Options{Write: true})
	require.ErrorIs(t, err, os.ErrPermission)
	require.NoError(t, os.Chmod(path, 0))
	_, err = Open(context.Background(), path, nil)
	require.ErrorIs(t, err, os.ErrPermission)
}

func TestLittleAddressSpace(t *testing.T) {
	if effort.RaceDetector || !effort.Long() {
		t.Skip("long, and the race detector needs address space without limit")
	}
	if files.EmulateWindows {
		t.Skip("the file is mapped anew")
	}
	require.Contains(t, child(t, "address space", "PLAID_TEST_PATH="+filepath.Join(testenv.RAMDir(t), "as.plaid"),
		"GOGC=20", "MALLOC_ARENA_MAX=1"), "all held")
}

// addressSpaceChild has no room to map what a writer likes to: it must work,
// and rather fail than wait for itself when the file outgrows the mapping.
func addressSpaceChild() error {
	path := os.Getenv("PLAID_TEST_PATH")
	size, err := procStatus("VmSize")
	if err != nil {
		return err
	}
	var free syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &free); err != nil {
		return err
	}
	tight := syscall.Rlimit{Cur: uint64(size) + 480<<20, Max: free.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &tight); err != nil {
		return err
	}
	debug.SetMemoryLimit(64 << 20) // garbage must not take the room that is to be had
	ctx := context.Background()
	docs := heavy("base", 5, 2<<20)
	if _, err := Build(ctx, path, mustSource(docs), &BuildOptions{Threads: 1}); err != nil {
		return err
	}
	ix, err := Open(context.Background(), path, &Options{Write: true})
	if err != nil {
		return err
	}
	more := heavy("more", 5, 2<<20)
	if _, err := ix.Add(ctx, mustSource(more), &AddOptions{Threads: 1}); err != nil {
		return err
	}
	docs = append(docs, more...)
	_, err = ix.Add(ctx, mustSource(heavy("most", 30, 2<<20)), &AddOptions{Threads: 1})
	if err == nil || !strings.Contains(err.Error(), "address space") {
		return fmt.Errorf("an addition beyond the mapping gives: %w", err)
	}
	if err := errors.Join(holds(ix, docs), ix.Close()); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &free); err != nil {
		return err
	}
	if ix, err = Open(context.Background(), path, &Options{Write: true}); err != nil {
		return err
	}
	most := heavy("most", 30, 2<<20)
	if _, err := ix.Add(ctx, mustSource(most), &AddOptions{Threads: 1}); err != nil {
		return err
	}
	if err := errors.Join(holds(ix, append(docs, most...)), ix.Close()); err != nil {
		return err
	}
	fmt.Println("all held")
	return nil
}

// procStatus reads a size from /proc/self/status, in bytes.
func procStatus(key string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			var kib int64
			_, err := fmt.Sscanf(rest, "%d kB", &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/self/status", key)
}
