package index

// What the tests that search, and so cannot be part of the package, need of it.
var (
	Small  = small
	RAMDir = ramDir
	Corpus = corpus
)

// Differs is how tests hold a snapshot against the documents that it should have.
var Differs = differs
