package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuickstart(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), &out))
	for _, want := range []string{
		"Indexed 46 abstracts, 9021 token vectors",
		"8460275  The Utilization of Extracellular Proteins as Nutrients Is Suppressed by mTORC1  ← judged relevant",
		"nDCG@10 over 24 claims: 0.87",
		"bytes a token",
	} {
		require.Contains(t, out.String(), want)
	}
}
