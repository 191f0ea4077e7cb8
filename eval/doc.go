// Package eval measures retrieval quality: it reads relevance judgements (qrels, also
// those of BEIR folders) and runs, computes the measures of trec_eval under the names
// of ir_measures, and compares runs.
//
// # Order of a run
//
// trec_eval ignores the rank column. It holds scores as 32-bit floats, sorts by
// score, highest first, and breaks ties by document id, the greatest in byte
// order first. [TiesTREC], the default, does the same; [TiesRank] trusts the rank
// column instead.
//
// # Averages
//
// Programs disagree on the queries that a mean runs over, so an [Average] names
// them, and a [Result] can give the mean of each:
//
//   - [AverageJudged], the default: every query with a judgement; one that is
//     missing from the run counts 0, so a system is not rewarded for failing.
//   - [AverageEvaluated]: judged queries that are in the run, which is what
//     pytrec_eval and BEIR report.
//   - [AverageRelevant]: every query with a relevant document, missing ones
//     counting 0.
//
// A query all of whose judgements are 0 or negative has no relevant document. As
// pytrec_eval does, each measure of relevance gives it the value 0 and the first
// two averages keep it in the denominator.
//
// # Comparing runs
//
// [Compare] says how two evaluated runs differ in one measure, query by query, and
// whether chance explains it ([RandomisationTest]). [CompareAll] holds several systems
// against a baseline and corrects for the number of tests with [Holm]. Resampling is
// seeded and repeats to the bit.
package eval
