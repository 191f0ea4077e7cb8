package store

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/keywords"
)

// counting derives the number of live documents.
type counting struct {
	docs   int
	err    error
	panics error
	closed bool
}

func (c *counting) Sync(_ context.Context, snap *index.Snapshot) error {
	c.docs = snap.Len()
	if c.panics != nil {
		panic(c.panics)
	}
	return c.err
}

func (c *counting) Close() error {
	c.closed = true
	return nil
}

func TestDerived(t *testing.T) {
	var made []*counting
	boom := errors.New("boom")
	s := openStore(t, t.TempDir(), &Options{Derive: func(_ context.Context, index string, _ bool, cfg collection.Config) (Derived, error) {
		require.FileExists(t, index)
		require.Equal(t, collection.TokenizerTrigram, cfg.Tokenizer)
		made = append(made, &counting{})
		return made[len(made)-1], nil
	}})
	c := declare(t, s, "docs", collection.Config{Tokenizer: collection.TokenizerTrigram})
	_, err := c.Derived(t.Context())
	require.ErrorIs(t, err, collection.ErrEmpty)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("a", 1))().err)
	require.Empty(t, made, "not before it is asked for")
	d, err := c.Derived(t.Context())
	require.NoError(t, err)
	require.Same(t, made[0], d)
	require.Equal(t, 1, made[0].docs)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("b", 1), randomDoc("c", 1))().err)
	require.Equal(t, 3, made[0].docs)
	_, err = c.Delete(t.Context(), collection.Selection{IDs: []string{"a"}})
	require.NoError(t, err)
	require.Equal(t, 2, made[0].docs)

	made[0].err = boom
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("d", 1))().err, "the change is no worse for it")
	require.True(t, made[0].closed)
	d, err = c.Derived(t.Context())
	require.NoError(t, err)
	require.Same(t, made[1], d)
	require.Equal(t, 3, made[1].docs)
	require.NoError(t, s.Close(t.Context()))
	require.True(t, made[1].closed)
	_, err = c.Derived(t.Context())
	require.ErrorIs(t, err, collection.ErrClosed)

	plain := declare(t, openStore(t, t.TempDir(), nil), "docs", collection.Config{})
	_, err = plain.Derived(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// slow waits for a go in its first Sync, or another one.
type slow struct {
	counting
	began, goOn chan struct{}
	syncs       int
	waitsIn     int // 0: the first
}

func (s *slow) Sync(ctx context.Context, snap *index.Snapshot) error {
	if s.syncs++; s.syncs == max(1, s.waitsIn) {
		close(s.began)
		select {
		case <-s.goOn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.counting.Sync(ctx, snap)
}

// openSlow is a collection of one document whose derived data is slow, and how often that was
// made.
func openSlow(t *testing.T, d *slow) (s *Store, c *Collection, made *int) {
	made = new(int)
	d.began, d.goOn = make(chan struct{}), make(chan struct{})
	s = openStore(t, t.TempDir(), &Options{Derive: func(context.Context, string, bool, collection.Config) (Derived, error) {
		*made++
		return d, nil
	}})
	c = declare(t, s, "docs", collection.Config{})
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("a", 1))().err)
	return s, c, made
}

// thrice asks three times at once, and returns what waits for the answers.
func thrice(t *testing.T, ask func() (Derived, error)) (answered func()) {
	answers := make(chan error)
	for range 3 {
		go func() {
			_, err := ask()
			answers <- err
		}()
	}
	return func() {
		for range 3 {
			require.NoError(t, <-answers)
		}
	}
}

// Data that takes long to make holds up no change, and is made once, however often the
// patience of those who ask for it ends.
func TestDerivedIsMadeBeside(t *testing.T) {
	d := &slow{}
	_, c, made := openSlow(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := c.Derived(ctx)
		gone <- err
	}()
	<-d.began
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("b", 1))().err)
	answered := thrice(t, func() (Derived, error) { return c.Derived(t.Context()) })
	close(d.goOn)
	answered()
	require.Equal(t, 1, *made)
	require.Equal(t, 2, d.docs)
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("c", 1))().err)
	require.Equal(t, 3, d.docs)
}

// What is being made when the collection ends is given up.
func TestDerivedEndsWithTheStore(t *testing.T) {
	d := &slow{}
	s, c, _ := openSlow(t, d)
	gone := make(chan error)
	go func() {
		_, err := c.Derived(t.Context())
		gone <- err
	}()
	<-d.began
	require.NoError(t, s.Close(t.Context()))
	require.ErrorIs(t, <-gone, collection.ErrClosed)
	require.True(t, d.closed)
}

// An error of opening is that of who asks, whatever comes with it; so is a panic. Each
// later question tries again.
func TestDerivedThatCannotBeOpened(t *testing.T) {
	boom := errors.New("boom")
	var derive func() (Derived, error)
	s := openStore(t, t.TempDir(), &Options{Derive: func(context.Context, string, bool, collection.Config) (Derived, error) { return derive() }})
	c := declare(t, s, "docs", collection.Config{})
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("a", 1))().err)
	derive = func() (Derived, error) {
		var none *counting
		return none, boom
	}
	for range 2 {
		_, err := c.Derived(t.Context())
		require.ErrorIs(t, err, boom)
	}
	derive = func() (Derived, error) { panic(boom) }
	_, err := c.Derived(t.Context())
	require.ErrorIs(t, err, boom)
	bad := &counting{panics: boom}
	derive = func() (Derived, error) { return bad, nil }
	_, err = c.Derived(t.Context())
	require.ErrorIs(t, err, boom)
	require.True(t, bad.closed)
	good := &counting{}
	derive = func() (Derived, error) { return good, nil }
	d, err := c.Derived(t.Context())
	require.NoError(t, err)
	require.Same(t, good, d)

	good.panics = boom
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("b", 1))().err, "the change is no worse for it")
	require.True(t, good.closed)
}

// Data that is found damaged is brought up to date beside changes, and not opened again.
func TestDerivedIsMendedBeside(t *testing.T) {
	d := &slow{waitsIn: 4} // the fourth Sync
	s, c, made := openSlow(t, d)
	have, err := c.Derived(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, d.syncs)
	answered := thrice(t, func() (Derived, error) { return c.repairDerived(t.Context(), have) })
	<-d.began
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("b", 1))().err)
	close(d.goOn)
	answered()
	require.Equal(t, 1, *made)
	require.Equal(t, 2, d.docs)

	d.err = errors.New("boom")
	_, err = c.repairDerived(t.Context(), have)
	require.ErrorIs(t, err, d.err)
	require.True(t, d.closed)
	_, err = c.repairDerived(t.Context(), have)
	require.ErrorIs(t, err, d.err)
	require.Equal(t, 2, *made, "from the beginning")
	require.NoError(t, s.Close(t.Context()))
	_, err = c.repairDerived(t.Context(), have)
	require.ErrorIs(t, err, collection.ErrClosed)
}

// Keywords that fail to follow a change are closed while searches hold them: those go on with what
// is opened again.
func TestKeywordsThatCannotFollow(t *testing.T) {
	s := openStore(t, t.TempDir(), &Options{Derive: DeriveKeywords(nil)})
	c := declare(t, s, "docs", collection.Config{})
	require.NoError(t, update(c, collection.UpdateOptions{}, randomDoc("a", 1))().err)
	v := view(t, c)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	uses := 0
	require.NoError(t, v.withKeywords(t.Context(), func(ix *keywords.Index) error {
		if uses++; uses < 3 {
			c.derived.syncAfterChange(ended, c) // as a change does
		}
		_, err := ix.Search(t.Context(), keywords.Query{Text: "a", K: 1})
		return err
	}))
	require.Equal(t, 3, uses)

	require.NoError(t, v.Close())
	require.NoError(t, s.Close(t.Context()))
	_, err := v.SearchKeywords(t.Context(), collection.KeywordQuery{Text: "a", K: 1})
	require.ErrorIs(t, err, collection.ErrClosed)
}
