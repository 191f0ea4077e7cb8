package index

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Reports read as sentences do, however they are printed.
func TestReportsAsText(t *testing.T) {
	build := &BuildReport{Docs: 46, Tokens: 7010, RMSE: .0712}
	build.Seconds.Train = .4
	retrain := &RetrainReport{Docs: 2, Tokens: 9}
	retrain.Before.Centroids, retrain.After.Centroids, retrain.Before.Nbits, retrain.After.Nbits = 1, 4, 8, 2
	for want, report := range map[string]fmt.Stringer{
		"46 documents, 7010 tokens, RMSE 0.0712, 0.4 s":         build,
		"3 documents, 1 replaced, 512 tokens, RMSE 0.0500":      &AddReport{Docs: 3, Replaced: 1, Tokens: 512, RMSE: .05},
		"3 documents, 9 tokens":                                 &CopyReport{Docs: 3, Tokens: 9},
		"4 documents":                                           &ExportReport{Docs: 4},
		"5 documents, 512 tokens, RMSE 0.0500":                  &SetAddReport{AddReport: AddReport{Docs: 5, Tokens: 512, RMSE: .05}},
		"46 documents, 10 bytes written, incremental":           &BackupReport{Docs: 46, Written: 10, Incremental: true},
		"2 documents, 9 tokens, 1 → 4 centroids, 8 → 2 bits":    retrain,
		"2 documents of colbert, 9 tokens, 4 centroids, 2 bits": &ImportReport{Engine: "colbert", Docs: 2, Tokens: 9, K: 4, Nbits: 2},
		"45 documents, 1 lost, 2 without their payload":         &SalvageReport{Docs: 45, LostDocs: 1, LostPayloads: []string{"a", "b"}},
	} {
		require.Equal(t, want, fmt.Sprintf("%v", report))
	}
}
