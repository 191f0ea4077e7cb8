//go:build unix

package keywords

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

func init() { testenv.Children["sync"] = syncChild }

// syncChild syncs the keywords of the index in PLAID_TEST_INDEX, in many
// transactions, and says when it has begun to read.
func syncChild() error {
	ctx, path := context.Background(), os.Getenv("PLAID_TEST_INDEX")
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	begun := false
	kw, err := Open(ctx, Path(path), &Options{Write: true, Memory: 20_000, Progress: func(int64, int64) {
		if !begun {
			begun = true
			fmt.Println("begun")
		}
		if os.Getenv("PLAID_TEST_WAIT") != "" {
			time.Sleep(time.Hour) // until the kill comes
		}
	}})
	if err != nil {
		return err
	}
	return kw.Sync(ctx, snap)
}

// A Sync that is killed at any moment leaves what was there, and the next one does
// the work.
func TestKilled(t *testing.T) {
	path := filepath.Join(ramDir(t), "x.plaid")
	rng := rand.New(rand.NewPCG(3, 4))
	words := func(n int) [][]byte {
		p := make([][]byte, n)
		for i := range p {
			p[i] = fmt.Appendf(nil, "all w%d w%d w%d", rng.IntN(50), rng.IntN(500), rng.IntN(5000))
		}
		return p
	}
	ix := build(t, path, words(500)...)
	docs := 500
	rounds := 12
	if !effort.Long() {
		rounds = 4
	}
	killed, ended := 0, 0
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), testenv.ChildVariable+"=sync", "PLAID_TEST_INDEX="+path, "GORACE=atexit_sleep_ms=0")
		if round%4 == 0 { // these are killed before they are done, however busy the machine is
			cmd.Env = append(cmd.Env, "PLAID_TEST_WAIT=1")
		}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		// The index is not open for writing while the child reads it.
		require.NoError(t, ix.Close())
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		require.NoError(t, err)
		time.Sleep(time.Duration(rng.IntN(1+30*(round%4))) * time.Millisecond) // any moment will do
		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		if err := cmd.Wait(); err != nil {
			killed++
		} else {
			ended++
		}
		testenv.WaitUnlocked(t, path, Path(path))
		ix, err = index.Open(context.Background(), path, &index.Options{Write: true})
		require.NoError(t, err)
		if round%2 == 0 { // the next child goes on from what the killed one left, or from this
			kw := open(t, Path(path), nil)
			syncWith(t, kw, ix)
			require.Len(t, search1(t, kw, Query{Text: "all", K: docs + 1}), docs)
			require.NoError(t, kw.Close())
		}
		_, err = ix.Add(context.Background(), documents(t, docs, words(500)...), nil)
		require.NoError(t, err)
		docs += 500
	}
	require.GreaterOrEqual(t, killed, rounds/4)
	kw := open(t, Path(path), nil)
	syncWith(t, kw, ix)
	require.Len(t, search1(t, kw, Query{Text: "all", K: docs + 1}), docs)
	require.NoError(t, ix.Close())
}
