package search

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// littleMemory is what a process with little memory has to say.
type littleMemory struct {
	Results uint64
	Time    time.Duration // of a question
	Faults  int64         // all in all
}

// An index five times the memory of a process gives what it gives elsewhere, and is searched in reasonable time.
func TestIndexLargerThanMemory(t *testing.T) {
	const dim, questions = 128, 300
	ask := func(path string) (m littleMemory) {
		ix, err := index.Open(t.Context(), path, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, ix.Close()) }()
		e, queries, sum := on(t, ix, 1), newMaker(5, dim, 300), fnv.New64a()
		var before, after syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		start := time.Now()
		for range questions {
			for _, h := range search(t, e, queries.query(24), Options{K: 10}).Hits {
				fmt.Fprintln(sum, h.ID, h.Score)
			}
		}
		m.Time = time.Since(start) / questions
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
		m.Results, m.Faults = sum.Sum64(), after.Majflt-before.Majflt
		return m
	}
	if path := os.Getenv("PLAID_LITTLE_MEMORY"); path != "" { // the process below
		pid := []byte(strconv.Itoa(os.Getpid()))
		require.NoError(t, os.WriteFile(os.Getenv("PLAID_LITTLE_GROUP")+"/cgroup.procs", pid, 0))
		require.NoError(t, json.NewEncoder(os.Stdout).Encode(ask(path)))
		return
	}
	if !effort.Long() {
		t.Skip("an index of 170 MB takes a minute; PLAID_LONG=1 runs it")
	}
	group, limit := memoryGroup(t)
	docs := newMaker(5, dim, 300).Docs("d", 2000, 40)
	for i := len(docs); i < 60_000; i++ { // of the same tokens
		docs = append(docs, vectors.Document{ID: fmt.Sprint("d", i), Tokens: docs[i%2000].Tokens})
	}
	path := filepath.Join(t.TempDir(), "large.plaid") // on a disk: files in memory count as memory
	_, err := index.Build(t.Context(), path, searchtest.Source(t, dim, docs), &index.BuildOptions{Nbits: 4, Centroids: 1024})
	require.NoError(t, err)
	want := ask(path)
	size := forget(t, path)
	require.NoError(t, os.WriteFile(filepath.Join(group, limit), []byte(strconv.FormatInt(size/5, 10)), 0))

	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestIndexLargerThanMemory$", "-test.timeout", "5m")
	c.Env = append(os.Environ(), "PLAID_LITTLE_MEMORY="+path, "PLAID_LITTLE_GROUP="+group,
		"GOMEMLIMIT="+strconv.FormatInt(size/10, 10))
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var got littleMemory
	require.NoError(t, json.NewDecoder(strings.NewReader(string(out))).Decode(&got), "%s", out)
	t.Logf("%d bytes: %v a question in memory, %v in a fifth of that, %.1f major faults each",
		size, want.Time, got.Time, float64(got.Faults)/questions)
	require.Equal(t, want.Results, got.Results)
}

// forget removes a file from the page cache, where its pages would count for who read them first.
func forget(t *testing.T, path string) (size int64) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Sync())
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); errno != 0 {
		t.Skipf("the page cache cannot be told to forget a file: %v", errno)
	}
	info, err := f.Stat()
	require.NoError(t, err)
	return info.Size()
}

// memoryGroup makes a control group in which memory can be limited, and names the file of the limit.
func memoryGroup(t *testing.T) (dir, limit string) {
	for _, g := range []struct{ dir, limit string }{
		{"/sys/fs/cgroup", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, // of version 1
	} {
		dir := filepath.Join(g.dir, fmt.Sprint("plaid-test-", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			for range 50 { // until the kernel has let go of the process
				if os.Remove(dir) == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Errorf("%s is left", dir)
		})
		if _, err := os.Stat(filepath.Join(dir, g.limit)); err == nil {
			return dir, g.limit
		}
	}
	t.Skip("no control group for memory can be made: that takes the right to, and the controller of memory")
	return "", ""
}
