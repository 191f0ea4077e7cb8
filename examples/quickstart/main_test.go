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
		"Encoded 46 abstracts, 10255 tokens, in ",
		"8460275  The Utilization of Extracellular Proteins as Nutrients Is Suppressed by mTORC1  ← judged relevant",
		"nDCG@10 over 24 claims: 0.89",
		"bytes a token",
	} {
		require.Contains(t, out.String(), want)
	}
}
