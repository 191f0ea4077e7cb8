// Package plaid searches texts by late interaction, as ColBERT does. A document is a matrix of token vectors, and so is
// a question. The score of a document is MaxSim: for each token of the question, take the largest inner product with a
// token of the document, and add these up.
//
//	docs, err := plaid.Create(ctx, "docs.plaid", &plaid.Options{Model: "colbert-small"})
//	_, err = docs.Add(ctx, plaid.Document{ID: "owl", Text: "Owls hunt at night."})
//	hits, err := docs.Search(ctx, plaid.Query{Text: "what hunts in the dark?"})
//
// A [Collection] is one index file with its encoder, its searcher and its word index. It may begin empty, takes changes
// while it is searched, and can be served over HTTP by package server ([Collection.Catalog]).
//
// A model reads a few hundred tokens of a text. A longer text is split into passages when it is added, so that all of
// it can be found; [Options.Passages] says how. Searches return documents with their best passages, or passages alone
// with [EachPassage].
//
// These packages can be used on their own:
//
//	encode                    texts to token vectors, with the folder of a model
//	vectors                   documents as vectors: from files, memory or a stream
//	index                     builds index files of vectors, changes, copies and checks them
//	search                    engines, on the processor or on a GPU: budgets, filters, explanations
//	search/keywords           BM25 over payloads; search/fuse makes one ranking of two
//	search/highlight          the words of a text that match a question
//	search/quality            recall, speed against recall, tuning
//	index/metadata/condition  conditions over payloads
//	server, collection/store  the service as an http.Handler; folders of collections
//	eval, eval/beir           measures of runs, and test collections
//	kernels/maxsim            MaxSim over plain vectors, without an index
//	codec                     the compression
//	index/interop             index folders of other engines
//
// Programs that import kernels/cuda open a device with kernels.OpenDevice, and pass it to an engine, a build or an
// encoder.
//
// # Concurrency
//
// A [Collection] is safe for concurrent use, and so are its parts. Any number of goroutines may read snapshots of an
// [github.com/plaid-ir/plaid/index.Index] while others change it; changes wait for each other. An
// [github.com/plaid-ir/plaid/search.Engine] answers any number of concurrent calls, each on the state of the index when
// the call begins. Calls that may take long have a context as their first parameter, and end with it.
//
// # Errors
//
// Errors of a [Collection] wrap the variables of this package, which are those of the packages below: test with
// errors.Is(err, plaid.ErrLocked). Other packages have further errors. Types with more information are
// [github.com/plaid-ir/plaid/vectors.FileError], the place in a file,
// [github.com/plaid-ir/plaid/search.QueryError], the query of a batch, and
// [github.com/plaid-ir/plaid/storage.CorruptError], the damaged value.
package plaid
