package store

import (
	"testing"

	"github.com/plaid-ir/plaid/internal/testing/collectiontest"
)

func TestSet(t *testing.T) {
	collectiontest.Run(t, openStore(t, t.TempDir(), &Options{Derive: DeriveKeywords(nil)}).Set())
}
