package search

import "github.com/plaid-ir/plaid/vectors"

// groupRanked is for rankings that were not made by an [Engine], such as those by words: it
// makes documents of a ranking of passages, best first. A document scores what its best
// passage does, and has so many of the passages that are in the ranking. Hits need their
// payloads.
func groupRanked(ranked []Hit, passages int) []Hit {
	type key struct {
		part int
		of   string
		is   bool // of passages
	}
	at := map[key]int{}
	docs := []Hit{}
	for _, h := range ranked {
		p, err := vectors.PassageOf(h.ID, h.Payload)
		if err != nil {
			p = nil // another program has stored it
		}
		k := key{h.Part, h.ID, false}
		if p != nil {
			h.Passage, k = p, key{h.Part, p.Of, true}
		}
		i, there := at[k]
		if !there {
			i = len(docs)
			at[k] = i
			d := Hit{ID: k.of, Part: h.Part, Ordinal: h.Ordinal, Score: h.Score, Payload: h.Payload}
			if p != nil {
				d.Payload = vectors.WholePayload(h.Payload)
			}
			docs = append(docs, d)
		}
		if len(docs[i].Passages) < max(passages, 1) {
			docs[i].Passages = append(docs[i].Passages, h)
		}
	}
	return docs
}

// RankGroups makes k documents of a ranking of passages as groupRanked does, of which rank has
// as many of the best as it is asked for, twice as many until they are of enough documents. most
// is how many there are; rank is asked for one at least.
func RankGroups(k, passages, most int, rank func(k int) ([]Hit, error)) ([]Hit, error) {
	most = max(most, 1)
	depth, each := most, min(max(passages, 1), most)+1
	if k < most/each {
		depth = each * k
	}
	for ; ; depth = min(2*depth, most) {
		ranked, err := rank(depth)
		if err != nil {
			return nil, err
		}
		docs := groupRanked(ranked, passages)
		if len(docs) >= k || len(ranked) < depth || depth == most {
			return docs[:min(len(docs), k)], nil
		}
	}
}
