package collectiontest

import (
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
)

// limit looks at the largest number of documents.
func (s *suite) limit() {
	_, err := s.c.Delete(s.Context(), collection.Selection{IDs: []string{"long"}})
	require.NoError(s, err)
	zero, two := uint64(0), uint64(2)
	_, err = s.c.SetMaxDocuments(s.Context(), &zero)
	require.ErrorIs(s, err, collection.ErrConfig)
	cfg, err := s.c.SetMaxDocuments(s.Context(), &two)
	require.NoError(s, err)
	require.Equal(s, &two, cfg.MaxDocuments)
	require.Equal(s, &two, s.c.Config().MaxDocuments)
	for _, id := range []string{"g", "h"} {
		r, err := s.c.Update(s.Context(), []collection.Document{document(id, 2)}, collection.UpdateOptions{})
		require.NoError(s, err)
		require.Positive(s, r.Evicted)
		st, err := s.c.Stats(s.Context())
		require.NoError(s, err)
		require.EqualValues(s, 2, st.Documents)
		s.numbers[id] = r.Numbers[0]
		s.view(func(v collection.View) {
			require.Equal(s, []string{id}, s.ids(v, collection.Selection{IDs: []string{id}}, collection.ReadOptions{}), "the newest one stays")
		})
	}
	cfg, err = s.c.SetMaxDocuments(s.Context(), nil)
	require.NoError(s, err)
	require.Nil(s, cfg.MaxDocuments)
}
