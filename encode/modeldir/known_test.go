package modeldir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearestKnown(t *testing.T) {
	for name, want := range map[string]string{
		"colbert-ir/colbertv2":               "colbert-ir/colbertv2.0",
		"colbert/ColBERTv2.0":                "colbert-ir/colbertv2.0",
		"answerai-colbert-small-v1":          "answerdotai/answerai-colbert-small-v1",
		"answerdotai/answerai-colbert-small": "answerdotai/answerai-colbert-small-v1",
		"lightonai/LateOn-code":              "lightonai/LateOn-Code",
		"lightonai/GTE-ModernColbert":        "lightonai/GTE-ModernColBERT-v1",
		"lightonai/mLateOn":                  "",
		"org/model":                          "",
		"lightonai/other":                    "",
		"":                                   "",
	} {
		require.Equal(t, want, NearestKnown(name), name)
	}
}
