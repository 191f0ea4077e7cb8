package server

// longDocs describe fields of bodies in the API's description, by TYPE.FIELD, where a description is
// too long for the tag "doc" of the field.
var longDocs = map[string]string{
	"recallOut.recall":  "mean share of the k best documents of an exhaustive search that are found",
	"updateIn.metadata": "an object for each document; its _id names the document, and replaces the one that has it",
	"updateIn.model": "what made the vectors; the index keeps the first one that is named, and refuses vectors and " +
		"queries that name another",
	"modelIn.fingerprint": "" +
		"equal for models that make the same vectors; goes before the name where both sides have one",
	"keepIn.keep_metadata": "" +
		"a document that has no metadata but its _id keeps that of the one that it replaces: its vectors " +
		"come later",
	"updateTextIn.metadata": "" +
		"an object for each document; its _id names the document, and replaces the one that has it",
	"updateTextIn.text_field": "keep the text in the metadata, under this key, where it is not there already",
	"updatedOut.replaced":     "documents that were deleted, with all of their passages, for those with the same _id",
	"updatedOut.evicted": "" +
		"oldest documents that were deleted for max_documents; of requests that were stored at once, all " +
		"are counted for one",
	"updatedOut.empty": "" +
		"documents and passages without vectors, as of texts that are empty: searches for vectors do not " +
		"find them",
	"deleteIn.condition": "" +
		"condition over the metadata; values are literals, or ? with a parameter each; a list meets what " +
		"one of its elements meets: tags = 'a'",
	"embeddingsIn.encoding_format": "" +
		"float (default): a list of numbers for each token; base64: of little-endian float32, row after " +
		"row, beside a shape",
	"feedbackIn.documents": "so many of the best documents are taken for good; at most 100 with those of the lists",
	"feedbackIn.unlike":    "_id of documents that are bad: what only they have counts against others",
	"explainIn.text_fields": "" +
		"fields of the metadata that were encoded, in order; default: the first of title and text, text, " +
		"page_content and content that has as many tokens as the document",
	"explainIn.similarities":     "also the inner product of each query token with each document token",
	"explainOut.stage":           "where the document left the search",
	"explainOut.document_tokens": "pieces of the document, where its metadata has the text and there is a model",
	"explainOut.image": "of a page: the address of its picture, or the path of a file (GET " +
		"/indices/{name}/image)",
	"explainOut.grid":              "of a page with a grid: what each query token scores with each cell",
	"explainOut.notes":             "that the query is longer than the model reads; what could not be told, and why",
	"healthOut.memory_usage_bytes": "that the program has from the system, without the files that it maps",
	"healthOut.train_tokens":       "from which an index is trained; with fewer it has 8 bits a component",
	"readyOut.disk":                "changes are refused with DISK_FULL until there is room",
	"idsOut.ids": "" +
		"in the order in which the documents were added; that of a document that is stored as passages is " +
		"there once",
	"newConfig.nbits":              "residual bits a component: 1, 2, 4 or 8; default 4. A small index has 8",
	"newConfig.start_from_scratch": "is kept and given back; the index is trained anew as it grows",
	"newConfig.max_documents":      "the oldest documents beyond it are deleted; default: no limit",
	"newConfig.fts_tokenizer":      "of keyword searches; default unicode61",
	"infoOut.found":                "what searches find of the exhaustive result, by k, as was measured",
	"infoOut.sampled":              "what searches have found by questions that the service has sampled",
	"storedOut.embeddings_b64":     "the same as base64 of little-endian float32, row after row",
	"metadataOut.metadata":         "an object for each document, with its _id and, as _subset_, its document id",
	"conditionIn.condition": "" +
		"condition over the metadata; values are literals, or ? with a parameter each; a list meets what " +
		"one of its elements meets: tags = 'a'",
	"getMetadataIn.document_ids": "in the order wanted; those that are not there are passed over",
	"getMetadataIn.values":       "false: the fields of each document by name alone, with null for their values",
	"updateMetadataIn.condition": "" +
		"condition over the metadata; values are literals, or ? with a parameter each; a list meets what " +
		"one of its elements meets: tags = 'a'; or ids",
	"updateMetadataIn.ids": "" +
		"instead of a condition: by _id; that of a document that is stored as passages means these",
	"facetsIn.fields": "fields of the metadata, as in conditions: lang, author.name; of a list each element counts",
	"facetsIn.values": "how many values of each field, those of the most documents; default 10",
	"poolIn.pool_by": "what is joined: similar vectors (default); of pages with image and grid tiles, squares of " +
		"pool_factor cells, or neighbours, similar cells that touch. A grid is stored as that of the " +
		"tiles; the other ways remove it",
	"restriction.subset": "" +
		"document ids that may be returned; an empty list lets none through, ids that are not there are " +
		"passed over",
	"restriction.filter_condition": "" +
		"condition over the metadata; values are literals, or ? with a parameter each; a list meets what " +
		"one of its elements meets: tags = 'a'",
	"rerankIn.query_b64": "base64 of little-endian float32, row after row; wins over query",
	"rerankAPIIn.ids":    "each _id of a document of index; one that is not there is not found",
	"rerankAPIResult.relevance_score": "" +
		"MaxSim by the number of query tokens: the mean cosine of each with what it matches best, 1 at " +
		"most",
	"paramsIn.offset": "leave this many of the best out: the next page begins where this one ends",
	"paramsIn.n_ivf_probe": "" +
		"centroids probed for each token; none, and 8, which clients always send: derived for each query",
	"paramsIn.n_full_scores": "" +
		"documents that get an exact score; none, and 4096, which clients always send: derived for each " +
		"query",
	"paramsIn.centroid_score_threshold": "is not used: what to prune is derived for each query",
	"paramsIn.n_approximate_scores":     "documents that get an approximate score; none: derived for each query",
	"paramsIn.mode": "exhaustive scores all documents; candidates scores those of subset or " +
		"ids, in full",
	"searchFields.text_query": "texts to look for in the metadata, by keywords; alone, or one for each of queries",
	"searchFields.text_mode": "" +
		"words: any text is its words; expression: phrases in quotation marks, prefixes*, +must and -must " +
		"not. Default words",
	"searchFields.alpha":  "share of the vectors where keywords are used too, 0 to 1; default 0.75",
	"searchFields.fusion": "how the two are put together; default relative_score",
	"searchFields.group": "" +
		"return documents, not passages: by their best passage, by the sum of those that passages says, " +
		"or by MaxSim over all their tokens; text_query ranks them by their best passages",
	"searchFields.passages": "how many passages of each document, where there is a group; default 3",
	"searchFields.highlight": "" +
		"tell which words of each document words of the query have found, where queries are texts",
	"searchOut.truncated": "queries that are longer than the model reads: their notes say so",
	"resultOut.metadata":  "what was stored beside each document, with its _id and, as _subset_, its document id",
	"resultOut.passages": "" +
		"of each document the best ones, where there is a group; document_ids are those of the first",
	"resultOut.spans": "" +
		"words of each document that words of the query have found, with their bytes in a field of the " +
		"metadata; with a group, in the passages",
	"resultOut.notes": "" +
		"that the query is longer than the model reads; documents whose matching words cannot be shown, " +
		"and why; whether feedback had to leave tokens out",
	"resultOut.coverage": "" +
		"of how many documents this is the result, where it is not of all: a cluster may be asked for " +
		"that",
	"windowIn.window": "" +
		"split texts into passages of at most this many tokens of the model, with _id like doc#0 (words, " +
		"where the model is behind an address and does not tell its tokens); then the metadata's title " +
		"stands before each passage, and text_field is text by default",
	"windowIn.window_by": "" +
		"the unit that is kept whole if it is no longer than a passage: words, sentences, sections of " +
		"Markdown, or blocks of source code; default words",
	"vectorsJSON.embeddings_b64": "base64 of little-endian float32, row after row; wins over embeddings",
}
