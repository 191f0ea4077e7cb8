package index

// What the tests that search, and so cannot be part of the package, need of it.
var (
	Small = small
	// ChunkBytes is what Small sets, among others.
	ChunkBytes = &chunkBytes
	Corpus     = corpus
	AppliedAt  = appliedAt
)

// Differs is how tests hold a snapshot against the documents that it should have.
var Differs = differs
