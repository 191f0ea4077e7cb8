package keywords

import (
	"cmp"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// phraseWord is a distinct word of a phrase, and where in its list a search is.
type phraseWord struct {
	postingReader
	length  int      // of the list
	offsets []uint32 // places in the phrase; at least one
	places  []uint32 // places in the current document
}

// phrase finds the documents with all words at their places, and counts how often. The
// lists of the distinct words are read side by side, each once, from the shortest on; a
// block of each is in memory.
func (s *search) phrase(b *bolt.Bucket, u *unit, g *shownSegment) (m matches, err error) {
	words, err := s.phraseWords(b, u, g)
	if err != nil || words == nil {
		return m, err
	}
	rarest := words[0]
	var starts []uint32
	for {
		more, err := rarest.advance(len(g.segment.docs))
		if err == nil {
			err = s.observe(1)
		}
		if err != nil || !more {
			return m, err
		}
		there, more, err := s.seekAll(words[1:], rarest.doc, len(g.segment.docs))
		if err != nil || !more {
			return m, err
		}
		if !there {
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

// phraseWords opens the lists of the distinct words of a phrase, the shortest first; nil if
// a word is not there.
func (s *search) phraseWords(b *bolt.Bucket, u *unit, g *shownSegment) ([]*phraseWord, error) {
	var words []*phraseWord
	known := map[string]*phraseWord{}
	for i, term := range u.terms {
		if w := known[term]; w != nil {
			w.offsets = append(w.offsets, u.places[i])
			continue
		}
		if err := s.ctx.Err(); err != nil {
			return nil, err
		}
		key, l, ok, err := lookup(b, g.ID, term)
		if err != nil || !ok {
			return nil, err
		}
		w := &phraseWord{length: l.docs, offsets: []uint32{u.places[i]}}
		if w.postingReader, err = l.postingReader(key); err != nil {
			return nil, err
		}
		known[term] = w
		words = append(words, w)
	}
	slices.SortStableFunc(words, func(v, w *phraseWord) int { return cmp.Compare(v.length, w.length) })
	return words, nil
}

// seekAll goes on to a document with all words; there tells whether it has them, more
// whether a later one may.
func (s *search) seekAll(words []*phraseWord, doc uint32, docs int) (there, more bool, err error) {
	for _, w := range words {
		for w.read == 0 || w.doc < doc {
			more, err := w.advance(docs)
			if err == nil {
				err = s.observe(1)
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

// phraseStarts appends the places of a document, with all words, where the phrase begins.
func (s *search) phraseStarts(starts []uint32, words []*phraseWord) ([]uint32, error) {
	for i, w := range words {
		w.places = w.appendPlaces(w.places[:0])
		if err := s.observe(len(w.places)); err != nil {
			return nil, err
		}
		offsets := w.offsets
		if i == 0 {
			for _, place := range w.places {
				if place >= offsets[0] {
					starts = append(starts, place-offsets[0])
				}
			}
			offsets = offsets[1:]
		}
		for _, offset := range offsets {
			rest := w.places
			starts = slices.DeleteFunc(starts, func(start uint32) bool {
				n, ok := slices.BinarySearch(rest, start+offset)
				rest = rest[n:]
				return !ok
			})
			if err := s.observe(1 + len(starts)); err != nil || len(starts) == 0 {
				return starts[:0], err
			}
		}
	}
	return starts, nil
}
