// Package plaid is where to begin: it says which package does what, and has the errors
// of all in one place. The engine is in the packages below it.
//
// plaid finds documents by late interaction, as ColBERT does. A document is a matrix of
// token vectors, and so is a query; the score of a document is MaxSim: for each query
// token the largest inner product with a token of the document, summed up. An index is
// one file of compressed vectors that is changed in transactions.
//
// From vectors to hits:
//
//	vectors.Open, FromDocuments, NewSpool   documents from files, memory or a stream
//	index.Build                             an index file of them
//	index.Open                              the index, to read or to change
//	search.New                              an engine, on the processor or on a GPU
//	Engine.Search, SearchBatch              hits: id, score, payload
//
// From texts, package encode makes the vectors: encode.Open takes the folder of a model,
// Encoder.Query and Encoder.Documents encode.
//
// Further packages:
//
//	index               additions, deletions, snapshots, payloads, backup, import, export
//	metadata/condition  conditions over the payload, for filters and deletions
//	search/quality      recall, speed against recall, tuning
//	search/keywords     BM25 over payloads; search/fuse makes one ranking of two
//	kernels/maxsim      MaxSim over plain vectors, without an index
//	eval, eval/beir     measures of runs, and test collections
//	codec               the compression
//	index/interop       index folders of other engines
//	server              the service as an http.Handler
//
// A device is opened by kernels.OpenDevice where kernels/cuda is imported, and given to
// an engine or a build.
//
// # Concurrency
//
// An [github.com/plaid-ir/plaid/index.Index] is safe for concurrent use. Any number of
// goroutines read snapshots while others change it; changes wait for each other. An
// [github.com/plaid-ir/plaid/search.Engine] answers any number of calls at a time, and
// each sees the index as it is when the call begins. What takes long takes a context
// first, and ends with it.
//
// # Errors
//
// Errors wrap the variables of this package, which are those of the packages that make
// them: test with errors.Is(err, plaid.ErrLocked). Packages encode, eval, keywords and
// server have further ones of their own. Types that tell more are
// [github.com/plaid-ir/plaid/vectors.FileError], the place in a file,
// [github.com/plaid-ir/plaid/search.QueryError], the query of a batch, and
// [github.com/plaid-ir/plaid/storage.CorruptError], the value that is damaged.
package plaid
