package index

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

// An index of texts that are encoded as they are read has the content of one of their
// spool; and wherever its build is interrupted, the next one goes on from there.
func TestTextsWithoutSpool(t *testing.T) {
	tiny(t)
	ctx := context.Background()
	e, err := encode.Open("../docs/examples/quickstart/colbert-nano", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	words := strings.Fields("cells divide and proteins fold in the membrane of old yeast while light falls on green leaves")
	const n = 60
	var texts []encode.Text
	for i := range n {
		text := encode.Text{ID: fmt.Sprint("d", i), Text: words[i%17] + " " + words[i*7%17] + " " + words[i*i%17], Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
		if i%13 == 5 {
			text.Text = ""
		}
		texts = append(texts, text)
	}
	broken, stop := errors.New("broken"), n
	open := func(context.Context) iter.Seq2[encode.Text, error] {
		return func(yield func(encode.Text, error) bool) {
			for i, text := range texts {
				if i == stop {
					yield(encode.Text{}, broken)
					return
				}
				if !yield(text, nil) {
					return
				}
			}
		}
	}
	c, err := encode.NewCollection(ctx, e, open)
	require.NoError(t, err)
	spool, _, err := encode.Spool(ctx, e, open(ctx), "", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, spool.Close()) }()

	dir := testenv.RAMDir(t)
	path := func(name any) string { return filepath.Join(dir, fmt.Sprint(name)) }
	o := BuildOptions{Centroids: 16, Memory: 32 << 20, Threads: 1}
	_, err = Build(ctx, path("spool"), spool, &o)
	require.NoError(t, err)
	want := digestOf(t, path("spool"))
	_, err = Build(ctx, path("texts"), c, &o)
	require.NoError(t, err)
	require.Equal(t, want, digestOf(t, path("texts")))

	_, err = Train(ctx, path("codec"), spool, &o)
	require.NoError(t, err)
	o = BuildOptions{Like: snapshotOf(t, path("codec")), Memory: o.Memory, Threads: 1}
	_, err = Build(ctx, path("like"), spool, &o)
	require.NoError(t, err)
	want = digestOf(t, path("like"))
	o.Input, o.Resume = c.Tag(), true
	resumed := 0
	for _, at := range []int{1, 20, 41, 59} {
		for _, stop = range []int{at, min(at+7, n-1)} {
			_, err := Build(ctx, path(at), c, &o)
			require.ErrorIs(t, err, broken)
		}
		stop = n
		r, err := Build(ctx, path(at), c, &o)
		require.NoError(t, err)
		require.Equal(t, want, digestOf(t, path(at)), "interrupted at %d", at)
		resumed += r.Resumed
	}
	require.Greater(t, resumed, n)
}
