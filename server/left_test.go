package server_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/storage"
)

// undecided is a set whose deletions are under way until they are given up.
type undecided struct {
	collection.Catalog
	began chan struct{}
}

func (s undecided) Get(name string) (collection.Collection, error) {
	c, err := s.Catalog.Get(name)
	return undecidedIndex{c, s.began}, err
}

type undecidedIndex struct {
	collection.Collection
	began chan struct{}
}

func (c undecidedIndex) Delete(ctx context.Context, _ collection.Selection) (index.Affected, error) {
	close(c.began)
	<-ctx.Done()
	return index.Affected{}, fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, ctx.Err())
}

// That a client leaves during its change is no failure of the service.
func TestClientLeavesDuringChange(t *testing.T) {
	st := openStore(t, nil)
	_, err := st.Catalog().Create(t.Context(), "pets", collection.Config{})
	require.NoError(t, err)
	var log bytes.Buffer
	began := make(chan struct{})
	o := &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s, err := server.New(undecided{st.Catalog(), began}, nil, o)
	require.NoError(t, err)
	ended := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		s.ServeHTTP(w, r)
	}))
	defer h.Close()
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodDelete, h.URL+"/indices/pets/documents",
		strings.NewReader(`{"ids": ["a"]}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	go func() {
		<-began
		leave()
	}()
	_, err = http.DefaultClient.Do(r)
	require.ErrorIs(t, err, context.Canceled)
	<-ended
	require.Contains(t, log.String(), "OUTCOME_UNKNOWN")
	require.NotContains(t, log.String(), "level=ERROR")
	require.NotContains(t, log.String(), "store")
}
