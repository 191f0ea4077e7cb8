package metadata_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// BenchmarkFacet counts the values of fields of 200,000 documents: few texts, numbers that
// are all different, and what runs do not tell apart, so that payloads are read.
func BenchmarkFacet(b *testing.B) {
	docs := make([]vectors.Document, 200_000)
	for i := range docs {
		docs[i] = vectors.Document{ID: fmt.Sprint(i), Payload: fmt.Appendf(nil,
			`{"title":"Number %d of many, with a title of some length","lang":"%s","price":%d.25,"sold":%v,"tags":["t%d","u%d"],"url":"https://example.org/articles/of/the/year/%07d"}`,
			i, []string{"en", "de", "fr"}[i%3], i, i%3 == 0, i%11, i%7, i)}
	}
	docs[0].Tokens = []float32{1, 0, 0, 0}
	snap := searchtest.Snapshot(b, searchtest.Build(b, 4, docs, nil))
	for _, field := range []condition.Field{"lang", "price", "sold", "tags"} {
		b.Run(string(field), func(b *testing.B) {
			for b.Loop() {
				f, err := snap.Facet(context.Background(), field, nil, nil)
				require.NoError(b, err)
				require.EqualValues(b, len(docs), f.Docs)
			}
		})
	}
}
