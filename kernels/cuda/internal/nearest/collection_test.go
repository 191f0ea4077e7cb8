package nearest

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/vectors"
)

// few are the first of texts.
func few(context.Context) iter.Seq2[encode.Text, error] {
	var all []encode.Text
	for t := range texts(ctx) {
		if len(all) < 12 {
			all = append(all, t)
		}
	}
	return encode.Texts(all...)
}

// Who does not build on the device reads vectors that stay there: texts are encoded once.
func TestTextsAreAddedOnce(t *testing.T) {
	on, _ := openWords(t, 100<<20)
	e, err := encode.Open("../../../../docs/examples/quickstart/colbert-nano", &encode.Options{OpenedDevice: on, Threads: 2})
	require.NoError(t, err)
	defer e.Close()
	spool, _, err := encode.Spool(ctx, e, few(ctx), "", nil)
	require.NoError(t, err)
	defer spool.Close()
	made := on.encoded.Load()
	var all [2]*index.Contents
	for i, open := range []func() (vectors.Source, error){
		func() (vectors.Source, error) { return spool, nil },
		func() (vectors.Source, error) { return encode.NewCollection(ctx, e, few) },
	} {
		path := filepath.Join(t.TempDir(), "x.plaid")
		first, err := vectors.FromDocuments(spool.Dim(), []vectors.Document{{ID: "first", Tokens: on.words[:20*spool.Dim()]}})
		require.NoError(t, err)
		_, err = index.Build(ctx, path, first, &index.BuildOptions{Centroids: 5})
		require.NoError(t, err)
		src, err := open()
		require.NoError(t, err)
		ix, err := index.Open(ctx, path, &index.Options{Write: true})
		require.NoError(t, err)
		_, err = ix.Add(ctx, src, nil)
		require.NoError(t, err)
		require.NoError(t, ix.Close())
		all[i] = contentsOf(t, path)
		if i == 1 {
			require.Equal(t, spool.Tokens(), on.encoded.Load()-made)
			var want, got []vectors.Document
			for rows, docs := range map[*[]vectors.Document]iter.Seq2[vectors.Document, error]{
				&want: spool.Docs(ctx, 3, 9), &got: src.Docs(ctx, 3, 9),
			} {
				for d, err := range docs {
					require.NoError(t, err)
					d.Tokens = append([]float32{}, d.Tokens...)
					*rows = append(*rows, d)
				}
			}
			require.Equal(t, want, got)
			require.NoError(t, src.Close())
		}
	}
	require.Equal(t, all[0], all[1])
}

// Without a place for payloads texts are encoded again.
func TestCollectionWithoutTemporaryFiles(t *testing.T) {
	on, _ := openWords(t, 100<<20)
	e, err := encode.Open("../../../../docs/examples/quickstart/colbert-nano", &encode.Options{OpenedDevice: on, Threads: 2})
	require.NoError(t, err)
	defer e.Close()
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, filepath.Join(dir, "none"))
	}
	c, err := encode.NewCollection(ctx, e, few)
	require.NoError(t, err)
	require.Nil(t, c.Vectors())
	_, err = index.Build(ctx, filepath.Join(dir, "x"), c, &index.BuildOptions{Device: on, Centroids: 5})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// Builds at the same time, of an encoder and a device, make the same index.
func TestBuildsAtOnce(t *testing.T) {
	on, _ := openWords(t, 300<<20)
	e, err := encode.Open("../../../../docs/examples/quickstart/colbert-nano", &encode.Options{OpenedDevice: on, Threads: 2})
	require.NoError(t, err)
	defer e.Close()
	dir := t.TempDir()
	var wait sync.WaitGroup
	var mu sync.Mutex
	var all []*index.Contents
	for i := range 3 {
		wait.Go(func() {
			c, err := encode.NewCollection(ctx, e, few)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			path := filepath.Join(dir, string(rune('a'+i)))
			_, err = index.Build(ctx, path, c, &index.BuildOptions{Device: on, Centroids: 5, Memory: 32 << 20})
			if errors.Is(err, kernels.ErrDeviceMemory) {
				return // the others' vectors may take all of it
			}
			if err != nil {
				t.Error(err)
				return
			}
			x := contentsOf(t, path)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, x)
		})
	}
	wait.Wait()
	require.NotEmpty(t, all)
	for _, x := range all {
		require.Equal(t, all[0], x)
	}
}

func TestCollectionThatIsClosed(t *testing.T) {
	on, _ := openWords(t, 100<<20)
	e, err := encode.Open("../../../../docs/examples/quickstart/colbert-nano", &encode.Options{OpenedDevice: on, Threads: 2})
	require.NoError(t, err)
	defer e.Close()
	c, err := encode.NewCollection(ctx, e, few)
	require.NoError(t, err)
	n := 0
	for d, err := range c.DocsWithoutTokens(ctx, 0, c.Len()) {
		require.NoError(t, err)
		require.Nil(t, d.Tokens)
		n++
	}
	require.Equal(t, c.Len(), n)
	require.NoError(t, c.Close())
	for _, err := range c.Docs(ctx, 0, 2) {
		require.NoError(t, err)
	}
	for _, err := range c.DocsWithoutTokens(ctx, 0, 2) {
		require.ErrorIs(t, err, os.ErrClosed)
	}
}

// A collection takes and refuses the texts that a spool does, and a call of the driver that fails while
// they are read leaves nothing.
func TestCollectionOfFewTexts(t *testing.T) {
	on, f := openWords(t, 100<<20)
	e, err := encode.Open("../../../../docs/examples/quickstart/colbert-nano", &encode.Options{OpenedDevice: on, Threads: 2})
	require.NoError(t, err)
	defer e.Close()
	for name, all := range map[string][]encode.Text{
		"none": {}, "empty": {{ID: "a"}, {ID: "b", Text: "   "}}, "punctuation": {{Text: "., !"}, {Text: "..."}},
		"some": {{ID: "x"}, {ID: "a", Text: "cells"}, {ID: "b", Text: "   "}, {ID: "c", Text: "cells"}, {ID: "d"}},
		"bad":  {{ID: "x", Text: "cells"}, {ID: "y", Text: "\xff"}}, "mixed": {{ID: "x", Text: "cells"}, {Text: "f"}},
	} {
		src := func(context.Context) iter.Seq2[encode.Text, error] { return encode.Texts(all...) }
		s, _, spoolErr := encode.Spool(ctx, e, src(ctx), "", nil)
		c, err := encode.NewCollection(ctx, e, src)
		require.Equal(t, spoolErr == nil, err == nil, name)
		if err != nil {
			continue
		}
		require.Equal(t, s.Dim(), c.Dim(), name)
		_, spoolErr = index.Build(ctx, filepath.Join(t.TempDir(), "a"), s, nil)
		_, err = index.Build(ctx, filepath.Join(t.TempDir(), "b"), c, &index.BuildOptions{Device: on})
		require.Equal(t, spoolErr == nil, err == nil, name)
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	}
	for n := 1; ; n++ {
		calls, hit := 0, false
		f.Fail = func(op string) driver.Result {
			if op == "cuMemFree" || op == "cuMemFreeHost" {
				return driver.Success
			}
			if calls++; calls == n {
				hit = true
				return driver.OutOfMemory
			}
			return driver.Success
		}
		c, err := encode.NewCollection(ctx, e, few)
		f.Fail = nil
		if err == nil {
			require.NoError(t, c.Close())
		}
		require.Zero(t, on.dev.Live().Allocations)
		if !hit {
			break
		}
	}
}
