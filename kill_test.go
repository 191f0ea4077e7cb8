//go:build unix

package plaid_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

const killedVariable = "PLAID_TEST_KILLED" // the index that a child changes until it is killed

func TestMain(m *testing.M) {
	if path := os.Getenv(killedVariable); path != "" {
		fmt.Fprintln(os.Stderr, changeForever(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// changeForever adds pairs of documents and deletes older ones, and says so when each is done.
func changeForever(path string) error {
	ctx := context.Background()
	o := &plaid.Options{Dim: testDim, Growth: growth, Bits: 8}
	c, err := plaid.Open(ctx, path, o)
	if err != nil {
		return err
	}
	n, err := c.Len(ctx)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	for i := time.Now().UnixNano(); ; i++ {
		a, b := fmt.Sprint(i, "a"), fmt.Sprint(i, "b")
		fmt.Println("adding", a, b)
		if _, err := c.Add(ctx, plaid.Document{ID: a, Text: "a", Vectors: unit(rng, 3)}, plaid.Document{ID: b, Text: "b", Vectors: unit(rng, 3)}); err != nil {
			return err
		}
		fmt.Println("added", a, b)
		if _, err := c.Search(ctx, plaid.Query{Text: "a", Vectors: unit(rng, 1), Hybrid: true}); err != nil {
			return err
		}
		if i%3 == 0 {
			fmt.Println("deleting", b)
			if _, err := c.Delete(ctx, plaid.Selection{IDs: []string{b}}); err != nil {
				return err
			}
			fmt.Println("deleted", b)
		}
	}
}

// A program that is killed at any moment loses nothing that a method has returned, and
// leaves no half of what it was at.
func TestKilled(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "docs.plaid")
	o := &plaid.Options{Dim: testDim, Growth: growth, Bits: 8}
	c, err := plaid.Create(ctx, path, o)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	want := map[string]bool{}
	for range effort.Cases(2, 100) {
		child := exec.CommandContext(ctx, os.Args[0])
		child.Env = append(os.Environ(), killedVariable+"="+path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		open := map[string]string{} // ids of what was begun and not answered
		lines, most := 0, 1+rand.IntN(40)
		in := bufio.NewScanner(out)
		for in.Scan() {
			words := strings.Fields(in.Text())
			for _, id := range words[1:] {
				switch words[0] {
				case "added":
					want[id] = true
					delete(open, id)
				case "deleted":
					delete(want, id)
					delete(open, id)
				default:
					open[id] = words[0]
				}
			}
			if lines++; lines == most {
				require.NoError(t, child.Process.Kill())
			}
		}
		require.Error(t, child.Wait())
		require.GreaterOrEqual(t, lines, most, "it ended by itself")

		c, err = plaid.Open(ctx, path, o)
		require.NoError(t, err)
		stored := 0
		for id, what := range open {
			_, err := c.Get(ctx, id)
			if err != nil {
				require.ErrorIs(t, err, plaid.ErrNotFound)
			}
			if what == "adding" && err == nil {
				want[id], stored = true, stored+1
			}
			if what == "deleting" && err != nil {
				delete(want, id)
			}
		}
		require.NotEqual(t, 1, stored, "half of what was added at once")
		for id := range want {
			_, err := c.Get(ctx, id)
			require.NoError(t, err, id)
		}
		n, err := c.Len(ctx)
		require.NoError(t, err)
		require.Len(t, want, n)
		ix, err := c.Index()
		require.NoError(t, err)
		require.NoError(t, ix.Verify(ctx))
		require.NoError(t, c.Close())
	}
}
