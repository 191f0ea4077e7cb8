package server

import (
	"encoding/json"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// ranking has the hits of one query, best first, and the snapshot that has their metadata.
type ranking struct {
	snapshot collection.Snapshot
	hits     []search.RankedHit
	stats    *search.Stats
	coverage *search.Coverage // nil if all documents were searched
}

// newRanking returns a ranking of hits without statistics.
func newRanking(v collection.Snapshot, hits []search.Hit) ranking {
	return ranking{snapshot: v, hits: search.RankedHits(hits)}
}

// toResult returns the answer to query i.
func (r *ranking) toResult(q *request, i int, in *searchFields) (resultOut, error) {
	out := resultOut{
		Query:     i,
		Documents: make([]uint64, len(r.hits)),
		Scores:    make([]float64, len(r.hits)),
		IDs:       make([]string, len(r.hits)),
		Coverage:  r.coverage,
	}

	// Ids and scores, statistics, and passages.
	for j := range r.hits {
		out.IDs[j] = r.hits[j].Hit.ID
		out.Documents[j], out.Scores[j] = collection.HitNumber(&r.hits[j].Hit), r.hits[j].Score
	}
	if in.Stats {
		out.Stats = r.stats
	}
	if in.Group != "" {
		if err := r.addPassages(q, in, &out); err != nil {
			return out, err
		}
	}

	// Metadata. If a document is stored as passages, its own is that of a passage without the passage's fields.
	if !in.wantsMetadata() {
		return out, nil
	}
	out.Metadata = make([]json.RawMessage, len(r.hits))
	for j := range r.hits {
		if err := q.ctx.Err(); err != nil {
			return out, err
		}
		h := &r.hits[j].Hit
		payload, err := r.snapshot.MetadataOf(h)
		if err != nil {
			return out, err
		}
		if len(h.Passages) > 0 && h.Passages[0].Passage != nil {
			payload = vectors.DocumentPayload(payload)
		}
		document := &collection.StoredDocument{Number: collection.HitNumber(h), ID: h.ID, Metadata: payload}
		if out.Metadata[j], err = q.documentMetadata(document); err != nil {
			return out, err
		}
	}
	return out, nil
}

// wantsMetadata reports whether the answer has the metadata of the hits.
func (in *searchFields) wantsMetadata() bool { return in.Metadata == nil || *in.Metadata }
