package index

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// failing is a source that fails before a document, when it is read for the encoding.
type failing struct {
	vectors.Source
	at  int
	err error
}

func (f *failing) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		i := from
		for d, err := range f.Source.Docs(ctx, from, to) {
			if i >= f.at && err == nil {
				err = f.err
			}
			if i++; !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// tiny makes many chunks, transactions, runs of fields, segments and batches.
func tiny(t *testing.T) {
	small(t)
	segment, share, batch := minSegmentBytes, segmentBudgetShare, maxBatchTokens
	tiniest()
	t.Cleanup(func() { minSegmentBytes, segmentBudgetShare, maxBatchTokens = segment, share, batch })
}

func tiniest() {
	chunkBytes, transactionBytes, maxRunBytes, minSegmentBytes, segmentBudgetShare, maxBatchTokens = 300, 500, 3000, 1500, 1<<40, 37
}

func resumeDocs(n int) []vectors.Document {
	docs := corpus(n, 6, 8, 11)
	for i := range docs {
		if i%4 != 1 {
			docs[i].Payload = fmt.Appendf(nil, `{"n":%d,"t":"text %d"}`, i, i%7)
		}
	}
	return docs
}

// Wherever a build is interrupted, the one that goes on makes the same index.
func TestResume(t *testing.T) {
	tiny(t)
	ctx := context.Background()
	dir := testenv.RAMDir(t)
	docs := resumeDocs(120)
	path := func(name any) string { return filepath.Join(dir, fmt.Sprint(name)) }
	o := BuildOptions{Seed: 3, Memory: 32 << 20, Threads: 1}
	train := func(src vectors.Source) *Snapshot { // so that only the encoding reads the source
		_, err := Train(ctx, path("codec"), src, &o)
		require.NoError(t, err)
		return snapshotOf(t, path("codec"))
	}
	src := fromDocs(t, 8, docs)
	o = BuildOptions{Like: train(src), Memory: o.Memory, Threads: 1}
	build(t, path("whole"), 8, docs, &o)
	want := digestOf(t, path("whole"))
	whole := snapshotOf(t, path("whole"))
	require.Greater(t, whole.Segments(), 2)
	require.Greater(t, len(whole.State().FieldRuns), 1)
	broken := errors.New("broken")
	o.Input, o.Resume = "docs", true
	resumed := 0
	for _, at := range []int{1, 7, 30, 31, 60, 100, 33, 77, 32, 119}[effort.Cases(6, 0):] {
		p := path(at)
		stops := []int{at, min(at+1, 119), min(at+20, 119)}
		left := 0
		for _, stop := range stops {
			_, err := Build(ctx, p, &failing{src, stop, broken}, &o)
			require.ErrorIs(t, err, broken)
			if on := (*ResumableError)(nil); errors.As(err, &on) { // then there is something, and it is said how much
				require.Equal(t, p, on.Path)
				require.GreaterOrEqual(t, on.Docs, left)
				left = on.Docs
				_, err = Open(ctx, p, nil)
				require.ErrorIs(t, err, storage.ErrUnfinished)
			} else {
				require.Zero(t, left)
				require.NoFileExists(t, p)
			}
		}
		r, err := Build(ctx, p, src, &o)
		require.NoError(t, err)
		require.Equal(t, left, r.Resumed)
		require.Equal(t, want, digestOf(t, p), "interrupted at %v", stops)
		s := snapshotOf(t, p)
		require.NoError(t, s.Verify(ctx))
		require.Equal(t, whole.State().Clamped, s.State().Clamped)
		if at == 119 {
			require.Greater(t, r.Resumed, 80)
		}
		resumed += r.Resumed
		require.Equal(t, 120, r.Docs)
	}
	require.Positive(t, resumed)

	// Another input, or other options, begin anew; so does a build that is not to go on.
	for name, other := range map[string]BuildOptions{
		"input": {Like: o.Like, Memory: o.Memory, Input: "others", Resume: true}, "options": {Nbits: 4, Input: "docs", Resume: true}, "anew": {Like: o.Like, Memory: o.Memory},
	} {
		_, err := Build(ctx, path(name), &failing{src, 100, broken}, &o)
		require.ErrorIs(t, err, broken)
		_, err = Open(ctx, path(name), nil)
		require.ErrorIs(t, err, storage.ErrUnfinished)
		r, err := Build(ctx, path(name), src, &other)
		require.NoError(t, err)
		require.Zero(t, r.Resumed, name)
		require.NoError(t, snapshotOf(t, path(name)).Verify(ctx))
	}
	// One that is not to go on leaves nothing.
	_, err := Build(ctx, path("none"), &failing{src, 100, broken}, &BuildOptions{Like: o.Like, Memory: o.Memory, Input: "docs"})
	require.ErrorIs(t, err, broken)
	require.NoFileExists(t, path("none"))
	_, err = Build(ctx, path("none"), src, &BuildOptions{Resume: true})
	require.ErrorIs(t, err, ErrOption)
	// Beside an index that is to be replaced.
	build(t, path("there"), 8, docs[:9], nil)
	o.Force = true
	_, err = Build(ctx, path("there"), &failing{src, 90, broken}, &o)
	require.ErrorIs(t, err, broken)
	reading(t, path("there"), func(s *Snapshot) { require.Equal(t, 9, s.Len()) })
	on := (*ResumableError)(nil)
	require.ErrorAs(t, err, &on)
	require.Positive(t, on.Docs)
	r, err := Build(ctx, path("there"), src, &o)
	require.NoError(t, err)
	require.Equal(t, on.Docs, r.Resumed)
	require.Equal(t, want, digestOf(t, path("there")))
}

func init() { testenv.Children["resume"] = resumeChild }

// resumeChild builds until it is killed, and says how far it is. It may have to wait
// after each time for a word to go on.
func resumeChild() error {
	in, waits := bufio.NewReader(os.Stdin), os.Getenv("PLAID_TEST_WAIT") != ""
	tiniest()
	ctx := context.Background()
	src, err := vectors.FromDocuments(8, resumeDocs(400))
	if err != nil {
		return err
	}
	r, err := Build(ctx, os.Getenv("PLAID_TEST_PATH"), src, &BuildOptions{
		Seed: 3, Memory: 32 << 20, Input: "docs", Resume: os.Getenv("PLAID_TEST_RESUME") != "", Threads: 1,
		Progress: func(p Progress) {
			fmt.Println(p.Stage, p.Done)
			if waits {
				_, _ = in.ReadString('\n')
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Println("done", r.Resumed)
	return nil
}

// A build is killed again and again; the last one makes the same index. In every other
// round it is killed while it waits, in the midst of the encoding; in the others while it
// works, so that it may be further than it has said, and done too.
func TestResumeKilled(t *testing.T) {
	tiny(t)
	dir := testenv.RAMDir(t)
	whole := filepath.Join(dir, "whole")
	build(t, whole, 8, resumeDocs(400), &BuildOptions{Seed: 3, Memory: 32 << 20})
	want := digestOf(t, whole)
	rounds := 6
	if !effort.Long() {
		rounds = 2
	}
	resumed := 0
	for round := range rounds {
		path := filepath.Join(dir, fmt.Sprint("x", round))
		waits := round%2 == 0
		for kill := 0; ; kill++ {
			env := []string{"PLAID_TEST_PATH=" + path}
			if kill > 0 { // the first need not know that it will be gone on with
				env = append(env, "PLAID_TEST_RESUME=1")
			}
			if waits {
				env = append(env, "PLAID_TEST_WAIT=1")
			}
			cmd, in, out, stderr := startChild(t, "resume", env...)
			encoding := 0
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if n, ok := strings.CutPrefix(lines.Text(), "done "); ok && n != "0" {
					resumed++
				}
				if strings.HasPrefix(lines.Text(), "encode") {
					if encoding++; kill < 4 && encoding > kill+round {
						break
					}
				}
				if waits {
					_, _ = in.Write([]byte("\n")) // the child may be done
				}
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			require.Empty(t, stderr.String())
			testenv.WaitUnlocked(t, path)
			ix, err := Open(context.Background(), path, nil)
			if err == nil { // done
				require.NoError(t, ix.Close())
				require.True(t, kill == 4 || !waits)
				break
			}
			require.True(t, errors.Is(err, storage.ErrUnfinished) || errors.Is(err, fs.ErrNotExist), "%v", err)
			require.Less(t, kill, 4)
		}
		require.Equal(t, want, digestOf(t, path))
	}
	require.GreaterOrEqual(t, resumed, (rounds+1)/2)
}

// Wherever a build is interrupted, also within the passages of a document and behind the last of them.
func TestResumePassages(t *testing.T) {
	tiny(t)
	ctx, dir := t.Context(), testenv.RAMDir(t)
	var docs []vectors.Document
	tokens := corpus(90, 6, 8, 5)
	for n := 0; len(docs) < 90; n++ {
		id := fmt.Sprint("document-", n)
		if n%3 == 0 {
			docs = append(docs, vectors.Document{ID: id, Payload: []byte(`{"n":1}`)})
		}
		for i := range min(n%3, 1) * (1 + 7*n%5) {
			p := vectors.Passage{ParentID: id, Number: i, Start: i, End: i + 1}
			payload, err := p.Payload(fmt.Appendf(nil, `{"t":%q}`, strings.Repeat("x", 40*(len(docs)%5))))
			require.NoError(t, err)
			docs = append(docs, vectors.Document{ID: p.ID(), Payload: payload})
		}
	}
	for i := range docs {
		docs[i].Tokens = tokens[i%len(tokens)].Tokens
	}
	src := fromDocs(t, 8, docs)
	path := func(name any) string { return filepath.Join(dir, fmt.Sprint(name)) }
	_, err := Train(ctx, path("codec"), src, &BuildOptions{Seed: 3, Memory: 32 << 20, Threads: 1})
	require.NoError(t, err)
	o := BuildOptions{Like: snapshotOf(t, path("codec")), Memory: 32 << 20, Threads: 1}
	build(t, path("whole"), 8, docs, &o)
	want := digestOf(t, path("whole"))
	whole := snapshotOf(t, path("whole"))
	o.Input, o.Resume = "docs", true
	broken := errors.New("broken")
	within, behind := 0, 0
	for at := 1; at < len(docs); at += effort.Cases(2, 1) {
		_, err := Build(ctx, path(at), &failing{src, at, broken}, &o)
		require.ErrorIs(t, err, broken)
		if on := (*ResumableError)(nil); errors.As(err, &on) {
			before, _ := vectors.SplitPassageID(docs[on.Docs-1].ID)
			switch next, _ := vectors.SplitPassageID(docs[on.Docs].ID); {
			case next == before:
				within++
			case before != docs[on.Docs-1].ID:
				behind++
			}
		}
		_, err = Build(ctx, path(at), src, &o)
		require.NoError(t, err, "interrupted at %d", at)
		require.Equal(t, want, digestOf(t, path(at)), "interrupted at %d", at)
		s := snapshotOf(t, path(at))
		require.NoError(t, s.Verify(ctx))
		require.Equal(t, whole.State(), s.State())
		require.True(t, whole.Passages().Equals(s.Passages()))
		require.NoError(t, os.Remove(path(at)))
	}
	t.Logf("interrupted within a document: %d, behind one: %d", within, behind)
	require.Positive(t, within)
	require.Positive(t, behind)
}
