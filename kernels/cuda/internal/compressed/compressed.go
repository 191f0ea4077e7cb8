// Package compressed searches compressed tokens on a device: MaxSim over codes
// and residuals.
//
//	Attach     chunks → staging → pack → tiles of 16 tokens, resident
//	Search     checks, and asks the device for requests, which batch
//	batch      prep_query, centroid_scores, [probe], scan, pick, fine
//	order      by fine scores, in the asking goroutine
//
// The structs of parameters stand beside the launches that they are for. They
// are those of src/plaid.cuh, which says what they mean, field for field; a test
// of package cuda compares the two.
package compressed

// Constants of src/plaid.cuh and of the kernels.
const (
	tileTokens  = 16
	columns     = 32 // query tokens of a group
	scanThreads = 128
	wideThreads = 512 // of scans of four groups side by side
	spareTiles  = 4   // zero tiles after the last one
	maxTopK     = 4096
	topkBlock   = 8192 // entries that a block of topk_* reduces
	tableMode   = 16
	halfMode    = 32 // + bits: scan_f*, of sm_90a alone
	maxDocs     = 1<<31 - 1
	maxRatio    = 64 // of scales of centroids, for scan_b*

	// halfArch is the architecture whose device code has scan_f*.
	halfArch = "90a"
)
