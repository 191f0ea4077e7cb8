//go:build linux

package index

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

func init() {
	testenv.Children["backup"] = backupChild
	testenv.Children["backup file size"] = backupFileSizeChild
}

// backupChild changes an index and backs it up until it is killed. It says
// which state the next copy will be of, and when it is done.
func backupChild() error {
	path := os.Getenv("PLAID_TEST_PATH")
	ctx := context.Background()
	ix, err := Open(context.Background(), path, &Options{Write: true})
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		docs := corpus(8, 6, fullDim, uint64(time.Now().UnixNano()))
		for i := range docs {
			docs[i].Payload = []byte(strings.Repeat("x", 2000))
		}
		if _, err := ix.Add(ctx, mustSource(docs), &AddOptions{Replace: true, Threads: 1}); err != nil {
			return err
		}
		if n%30 == 29 {
			if err := ix.Compact(ctx, nil); err != nil {
				return err
			}
		}
		s, err := ix.Snapshot()
		if err != nil {
			return err
		}
		d, _, err := s.Inspect(ctx)
		if err := errors.Join(err, s.Close()); err != nil {
			return err
		}
		fmt.Printf("begin %s\n", d)
		if _, err := ix.BackupTo(ctx, path+".copy", &BackupOptions{Incremental: n%2 == 0}); err != nil {
			return err
		}
		fmt.Println("done")
	}
}

// A process is killed while it makes backups: the copy is the one before or the
// new one, and the next backup removes what is left.
func TestBackupKilled(t *testing.T) {
	kills := effort.Cases(12, 60)
	dir := testenv.RAMDir(t)
	path := filepath.Join(dir, "x.plaid")
	build(t, path, fullDim, heavy("base", 100, 3000), nil)
	have := ""
	left := 0
	for kill := range kills {
		cmd, _, pipe, _ := startChild(t, "backup", "PLAID_TEST_PATH="+path)
		out := bufio.NewReader(pipe)
		first, err := out.ReadString('\n') // the clock starts with the first backup
		require.NoError(t, err)
		rest := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(out)
			rest <- string(text)
		}()
		time.Sleep(time.Duration(rand.IntN(60_000)) * time.Microsecond) // any moment will do
		require.NoError(t, cmd.Process.Kill())
		said := first + <-rest
		require.Error(t, cmd.Wait())
		testenv.WaitUnlocked(t, path)
		next := ""
		for line := range strings.Lines(said) {
			if d, ok := strings.CutPrefix(line, "begin "); ok && strings.HasSuffix(d, "\n") {
				next = strings.TrimSpace(d)
			} else if line == "done\n" {
				have, next = next, ""
			}
		}
		if have != "" || next != "" {
			if _, err := os.Stat(path + ".copy"); have == "" && errors.Is(err, os.ErrNotExist) {
				continue
			}
			reading(t, path+".copy", func(s *Snapshot) {
				require.NoError(t, s.Verify(context.Background()))
				got := snapshotDigest(t, s)
				require.True(t, got == have || got == next, "kill %d: neither the copy before nor the new one", kill)
				have = got
			})
		}
		temporaries, err := filepath.Glob(filepath.Join(dir, "*.plaid-partial-*"))
		require.NoError(t, err)
		left += len(temporaries)
		require.LessOrEqual(t, len(temporaries), 1)
	}
	t.Logf("%d of %d kills left a temporary", left, kills)
	ix := writing(t, path)
	_, err := ix.BackupTo(context.Background(), path+".copy", nil)
	require.NoError(t, err)
	requireFiles(t, dir, 2)
}

func TestBackupWithoutRoom(t *testing.T) {
	require.Contains(t, child(t, "backup file size", "PLAID_TEST_PATH="+filepath.Join(testenv.RAMDir(t), "x.plaid")), "all held")
}

// backupFileSizeChild lets backups fail after more and more of them was written.
func backupFileSizeChild() error {
	signal.Ignore(syscall.SIGXFSZ)
	path := os.Getenv("PLAID_TEST_PATH")
	to := path + ".copy"
	ctx := context.Background()
	var free syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &free); err != nil {
		return err
	}
	old, docs := heavy("old", 20, 1000), heavy("new", 60, 3000)
	if _, err := Build(ctx, path, mustSource(old), nil); err != nil {
		return err
	}
	ix, err := Open(context.Background(), path, &Options{Write: true})
	if err != nil {
		return err
	}
	if _, err := ix.BackupTo(ctx, to, nil); err != nil {
		return err
	}
	if _, err := ix.Add(ctx, mustSource(docs), nil); err != nil {
		return err
	}
	failed := 0
	for _, o := range []BackupOptions{{}, {Incremental: true}} {
		for _, room := range []uint64{1, 4 << 10, 10 << 10, 40 << 10, 100 << 10, 200 << 10} {
			limit := free
			limit.Cur = room
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
				return err
			}
			_, err := ix.BackupTo(ctx, to, &o)
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &free); err != nil {
				return err
			}
			if err == nil {
				return fmt.Errorf("a backup within %d bytes succeeds", room)
			}
			failed++
			if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), to) {
				return fmt.Errorf("a backup within %d bytes fails with: %w", room, err)
			}
			if err := fileHolds(to, old); err != nil {
				return fmt.Errorf("after a backup within %d bytes: %w", room, err)
			}
			if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 2 {
				return fmt.Errorf("a temporary is left: %v %v", entries, err)
			}
		}
	}
	if _, err := ix.BackupTo(ctx, to, nil); err != nil {
		return err
	}
	if err := errors.Join(ix.Close(), fileHolds(to, append(old, docs...))); err != nil {
		return err
	}
	fmt.Println("all held", failed)
	return nil
}

func TestBackupDiskFull(t *testing.T) {
	dir := mount(t, "size=400k")
	path := filepath.Join(testenv.RAMDir(t), "x.plaid")
	ctx := context.Background()
	docs := heavy("base", 10, 4000)
	build(t, path, fullDim, docs, nil)
	ix := writing(t, path)
	to := filepath.Join(dir, "copy.plaid")
	_, err := ix.BackupTo(ctx, to, nil)
	require.NoError(t, err)
	more := heavy("more", 60, 9000)
	add(t, ix, fullDim, more...)
	for _, incremental := range []bool{false, true} {
		_, err = ix.BackupTo(ctx, to, &BackupOptions{Incremental: incremental})
		require.ErrorIs(t, err, syscall.ENOSPC)
		requireFile(t, to, docs)
		requireFiles(t, dir, 1)
	}
	require.NoError(t, holds(ix, append(docs, more...)))
}
