// Package plaid finds texts by late interaction, as ColBERT does. A document is a matrix of
// token vectors, and so is a question; the score of a document is MaxSim: for each token
// of the question the largest inner product with a token of the document, summed up.
//
//	docs, err := plaid.Create(ctx, "docs.plaid", &plaid.Options{Model: "colbert-small"})
//	_, err = docs.Add(ctx, plaid.Document{ID: "owl", Text: "Owls hunt at night."})
//	hits, err := docs.Search(ctx, plaid.Query{Text: "what hunts in the dark?"})
//
// A [Collection] is one index file with the encoder, the searcher and the search by words
// that belong to it. It grows from nothing, takes changes while it is searched, and is
// served over HTTP by package server ([Collection.Set]).
//
// A model reads a few hundred tokens of a text. A longer text is split into passages when it is
// added, so that all of it can be found; [Options.Passages] says how. Searches return documents
// with their best passages, or passages alone with [EachPassage].
//
// The packages below do each part by itself:
//
//	encode                    texts to token vectors, with the folder of a model
//	vectors                   documents as vectors: from files, memory or a stream
//	index                     builds index files of vectors, changes, copies and checks them
//	search                    engines, on the processor or on a GPU: budgets, filters, explanations
//	search/keywords           BM25 over payloads; search/fuse makes one ranking of two
//	search/highlight          the words of a text that a question has found
//	search/quality            recall, speed against recall, tuning
//	index/metadata/condition  conditions over payloads
//	server, collection/store  the service as an http.Handler; folders of collections
//	eval, eval/beir           measures of runs, and test collections
//	kernels/maxsim            MaxSim over plain vectors, without an index
//	codec                     the compression
//	index/interop             index folders of other engines
//
// A device is opened by kernels.OpenDevice where kernels/cuda is imported, and given to
// an engine, a build or an encoder.
//
// # Concurrency
//
// A [Collection] is safe for concurrent use, and so are its parts. An
// [github.com/plaid-ir/plaid/index.Index] is safe for concurrent use. Any number of
// goroutines read snapshots while others change it; changes wait for each other. An
// [github.com/plaid-ir/plaid/search.Engine] answers any number of calls at a time, and
// each sees the index as it is when the call begins. What takes long takes a context
// first, and ends with it.
//
// # Errors
//
// Errors of a [Collection] wrap the variables of this package, which are those of the
// packages that make them: test with errors.Is(err, plaid.ErrLocked). The other packages
// have further ones of their own. Types that tell more are
// [github.com/plaid-ir/plaid/vectors.FileError], the place in a file,
// [github.com/plaid-ir/plaid/search.QueryError], the query of a batch, and
// [github.com/plaid-ir/plaid/storage.CorruptError], the value that is damaged.
package plaid
