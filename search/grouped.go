package search

import "github.com/plaid-ir/plaid/vectors"

// GroupRanked is for rankings that were not made by an [Engine], such as those by words: it
// makes documents of a ranking of passages, best first. A document scores what its best
// passage does, and has so many of the passages that are in the ranking. Hits need their
// payloads.
func GroupRanked(ranked []Hit, passages int) []Hit {
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

// GroupDepth is how many passages to rank at first where so many documents are wanted, and
// so many passages of each. Where these are of fewer documents twice as many are ranked.
func GroupDepth(k, passages int) int { return (max(passages, 1) + 1) * k }
