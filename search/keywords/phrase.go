package keywords

import (
	"cmp"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// phraseWord is a distinct word of a phrase, with the reader of its list.
type phraseWord struct {
	postingReader
	length          int      // of the list
	phrasePositions []uint32 // positions of the word in the phrase; at least one
	docPositions    []uint32 // positions of the word in the current document
}

// findPhrase finds the documents that have all words at their positions, and counts the
// occurrences. It reads the lists of the distinct words in step, each once, led by the shortest;
// one block of each is in memory.
func (s *search) findPhrase(b *bolt.Bucket, u *unit, g *segmentSnapshot) (m matches, err error) {
	words, err := s.openPhraseWords(b, u, g)
	if err != nil || words == nil {
		return m, err
	}
	rarest := words[0]
	var starts []uint32
	for {
		hasNext, err := rarest.advance(len(g.segment.docs))
		if err == nil {
			err = s.countSteps(1)
		}
		if err != nil || !hasNext {
			return m, err
		}
		found, hasNext, err := s.advanceTo(words[1:], rarest.doc, len(g.segment.docs))
		if err != nil || !hasNext {
			return m, err
		}
		if !found {
			continue
		}
		if starts, err = s.phraseStarts(starts[:0], words); err != nil {
			return m, err
		}
		if len(starts) > 0 {
			m.docs, m.tfs = append(m.docs, rarest.doc), append(m.tfs, uint32(len(starts)))
		}
	}
}

// openPhraseWords opens the lists of the distinct words of a phrase, the shortest first. It returns
// nil if the segment lacks a word.
func (s *search) openPhraseWords(b *bolt.Bucket, u *unit, g *segmentSnapshot) ([]*phraseWord, error) {
	var words []*phraseWord
	byTerm := map[string]*phraseWord{}
	for i, term := range u.terms {
		if w := byTerm[term]; w != nil {
			w.phrasePositions = append(w.phrasePositions, u.positions[i])
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return nil, err
		}
		key, l, ok, err := lookUpTerm(b, g.ID, term)
		if err != nil || !ok {
			return nil, err
		}
		w := &phraseWord{length: l.docs, phrasePositions: []uint32{u.positions[i]}}
		if w.postingReader, err = l.readPostings(key); err != nil {
			return nil, err
		}
		byTerm[term] = w
		words = append(words, w)
	}
	slices.SortStableFunc(words, func(v, w *phraseWord) int { return cmp.Compare(v.length, w.length) })
	return words, nil
}

// advanceTo moves the readers of words to a document, or to the first one after it. found reports
// whether all words have the document, mayHaveNext whether they may have a later one.
func (s *search) advanceTo(words []*phraseWord, doc uint32, docs int) (found, mayHaveNext bool, err error) {
	for _, w := range words {
		for w.read == 0 || w.doc < doc {
			more, err := w.advance(docs)
			if err == nil {
				err = s.countSteps(1)
			}
			if err != nil || !more {
				return false, false, err
			}
		}
		if w.doc != doc {
			return false, true, nil
		}
	}
	return true, true, nil
}

// phraseStarts appends the positions in the current document at which the phrase begins.
func (s *search) phraseStarts(starts []uint32, words []*phraseWord) ([]uint32, error) {
	for i, w := range words {
		w.docPositions = w.appendPositions(w.docPositions[:0])
		if err := s.countSteps(len(w.docPositions)); err != nil {
			return nil, err
		}
		offsets := w.phrasePositions
		if i == 0 { // the rarest word gives the candidates, by its first position in the phrase
			for _, position := range w.docPositions {
				if position >= offsets[0] {
					starts = append(starts, position-offsets[0])
				}
			}
			offsets = offsets[1:]
		}
		for _, offset := range offsets {
			positions := w.docPositions
			starts = slices.DeleteFunc(starts, func(start uint32) bool {
				n, ok := slices.BinarySearch(positions, start+offset)
				positions = positions[n:]
				return !ok
			})
			if err := s.countSteps(1 + len(starts)); err != nil || len(starts) == 0 {
				return starts[:0], err
			}
		}
	}
	return starts, nil
}
