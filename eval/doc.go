// Package eval measures retrieval quality: it reads relevance judgements (qrels, also
// those of BEIR folders) and runs, computes the measures of trec_eval under the names
// of ir_measures, and compares runs.
//
// # Order of a run
//
// trec_eval ignores the rank column. It stores scores as 32-bit floats, sorts by score, highest
// first, and breaks ties by document id, the greatest in byte order first. [TiesTREC], the default,
// does the same; [TiesRank] uses the rank column instead.
//
// # Averages
//
// Programs compute means over different queries. An [Average] selects the queries, and a [Result]
// can compute each mean:
//
//   - [AverageJudged], the default: every query with a judgement. A query that is missing from the
//     run counts 0, so a system is not rewarded for failing.
//   - [AverageEvaluated]: judged queries that are in the run, which is what
//     pytrec_eval and BEIR report.
//   - [AverageRelevant]: every query with a relevant document. Missing ones count 0.
//
// A query whose judgements are all 0 or negative has no relevant document. As in pytrec_eval, each
// measure of relevance has the value 0 for it, and the first two averages count it.
//
// # Comparing runs
//
// [Compare] compares two evaluated runs in one measure, query by query, and tests whether chance
// explains the difference ([RandomisationTest]). [CompareAll] compares several systems with a
// baseline and corrects for the number of tests with [Holm]. Resampling is seeded, so results are
// reproducible to the bit.
package eval
