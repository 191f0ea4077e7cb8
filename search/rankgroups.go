package search

import (
	"context"
	"math"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// DefaultPassages is the number of passages of a hit where a user sets none.
const DefaultPassages = 3

// DocumentKey identifies a document: by its shard, as in [Hit], and its id. Nodes of a cluster send it as
// JSON.
type DocumentKey struct {
	Shard int    `json:"Part"`
	ID    string `json:"ID"`
}

// RankGroups returns the k best documents of a ranking of documents and passages that did not come
// from an [Engine]. A document has the score of its best passage, and at most the given number of
// its best ranked passages. Equal ids in two shards are two documents.
//
// RankGroups calls rank for the best ones, eight times as many each time, until they belong to
// enough documents or all are ranked; total is the number of all documents and passages. Enough is
// the first of 100, 1,000, 10,000 and so on that is at least k: the passages of a document depend
// on how many were ranked, and must be the same on all pages.
//
// documentKey returns the document of a ranked entry; entries for which ok is false are skipped.
// readHit reads a passage, for documents that are returned only; if the hit has a payload, its
// document gets one.
func RankGroups[R any](
	ctx context.Context, k, passages, total int, rank func(k int) ([]R, error),
	documentKey func(*R) (key DocumentKey, ok bool), readHit func(*R) (Hit, error),
) ([]Hit, error) {
	total, passages = max(total, 1), max(passages, 1)
	depth, perDocument, enough := total, min(passages, total)+1, enoughGroups(k)
	if enough < total/perDocument {
		depth = perDocument * enough
	}
	for {
		ranked, err := rank(depth)
		if err != nil {
			return nil, err
		}
		docs, err := collectGroups(ctx, ranked, enough, passages, documentKey)
		if err != nil {
			return nil, err
		}
		if len(docs) >= enough || len(ranked) < depth || depth == total {
			return newRankedHits(ctx, ranked, docs[:min(k, len(docs))], readHit)
		}
		if depth > total/8 {
			depth = total
		} else {
			depth *= 8
		}
	}
}

// enoughGroups returns how many documents to rank where k are wanted ([RankGroups]).
func enoughGroups(k int) int {
	n := 100
	for n < k {
		if n > math.MaxInt/10 {
			return k
		}
		n *= 10
	}
	return n
}

// rankedDocument is a document with the positions of its passages in a ranking.
type rankedDocument struct {
	key       DocumentKey
	positions []int32
}

// collectGroups returns the k best documents of a ranking.
func collectGroups[R any](
	ctx context.Context, ranked []R, k, passages int, documentKey func(*R) (DocumentKey, bool),
) ([]rankedDocument, error) {
	docs := []rankedDocument{}
	indexByKey := map[DocumentKey]int{}
	complete := 0 // documents that have as many passages as wanted
	for i := range ranked {
		if i%1024 == 1023 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if complete == k {
			break
		}
		key, ok := documentKey(&ranked[i])
		if !ok {
			continue
		}
		n, known := indexByKey[key]
		switch {
		case !known && len(docs) == k, known && len(docs[n].positions) == passages:
			continue
		case !known:
			n = len(docs)
			indexByKey[key] = n
			docs = append(docs, rankedDocument{key: key})
		}
		d := &docs[n]
		if d.positions = append(d.positions, int32(i)); len(d.positions) == passages {
			complete++
		}
	}
	return docs, nil
}

// newRankedHits returns the hits of documents of a ranking.
func newRankedHits[R any](
	ctx context.Context, ranked []R, docs []rankedDocument, readHit func(*R) (Hit, error),
) ([]Hit, error) {
	hits := make([]Hit, len(docs))
	for i, d := range docs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h := &hits[i]
		h.Passages = make([]Hit, len(d.positions))
		for j, position := range d.positions {
			var err error
			if h.Passages[j], err = readHit(&ranked[position]); err != nil {
				return nil, err
			}
		}
		best := &h.Passages[0]
		h.ID, h.Shard, h.Ordinal, h.Score, h.Payload = d.key.ID, d.key.Shard, best.Ordinal, best.Score, best.Payload
		if best.Passage != nil && h.Payload != nil {
			h.Payload = vectors.DocumentPayload(h.Payload)
		}
	}
	return hits, nil
}

// RankGroupsBytes estimates the memory of RankGroups in addition to that of rank: for the documents
// that are found, with their hits, and for the id of each ranked passage's document, which is not
// kept.
func RankGroupsBytes(k, passages, total int) int64 {
	const idBytes, hitBytes = 48, 192
	k = max(min(enoughGroups(k), total), 1)
	return idBytes*int64(total) + hitBytes*int64(k)*int64(1+min(max(passages, 1), total/k+1))
}

// RankWords is RankGroups for a ranking of a snapshot by keywords. It reads payloads of hits only,
// and returns them if payload is set.
func RankWords(
	ctx context.Context, snap *index.Snapshot, k, passages int, payload bool,
	rank func(k int) ([]keywords.ScoredDocument, error),
) (hits []Hit, err error) {
	defer storage.Guard(snap.Path(), &err)()
	document := func(h *keywords.ScoredDocument) (key DocumentKey, ok bool) {
		if !snap.Live(h.Ordinal) { // the keywords may be newer than the snapshot
			return key, false
		}
		return DocumentKey{ID: snap.DocumentOf(h.Ordinal)}, true
	}
	return RankGroups(ctx, k, passages, snap.Len(), rank, document, func(found *keywords.ScoredDocument) (Hit, error) {
		h := Hit{ID: snap.ID(found.Ordinal), Ordinal: found.Ordinal, Score: found.Score}
		isPassage := snap.Passages().Contains(found.Ordinal)
		if !isPassage && !payload {
			return h, nil
		}
		stored, err := snap.Payload(found.Ordinal)
		if err != nil {
			return h, err
		}
		if isPassage {
			if h.Passage, err = vectors.PassageFromPayload(h.ID, stored); err != nil {
				h.Passage = nil // another program stored it
			}
		}
		if payload {
			h.Payload = stored
		}
		return h, nil
	})
}
