// Package encode turns texts into token vectors with a late-interaction model:
// a folder as models are published in, and no other program.
//
// [Open] reads the folder: its settings ([modeldir]), its tokenizer
// ([tokenizer]) and its weights ([weights]), which [native] computes with.
// [Encoder.Query] and [Encoder.Queries] encode queries, [Encoder.Documents] a
// stream of documents, [Spool] the same into a file that an index can be built
// from and that goes on where a process was ended. Vectors of a text depend on
// the text and the model alone: not on other texts, threads or the processor.
//
// [JSONL], [Folder], [CSV] and [Lines] read texts; [Window] parts long ones.
package encode
