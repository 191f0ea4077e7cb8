package tokenizer

import (
	"encoding/json"
	"errors"
)

// maxID is the highest id that is read: pieces are kept in a slice.
const maxID = 1<<24 - 1

// vocabulary is the pieces of the model, later with the added tokens.
type vocabulary struct {
	ids    map[string]int32
	pieces []string // by id; an id without a piece has an empty one
	bytes  int      // of all pieces together
	size   int      // number of the model's pieces, before tokens are added
}

// readMap reads a vocabulary of pieces to ids.
func (v *vocabulary) readMap(o value) error {
	if err := o.into(&v.ids, "an object of pieces and their ids"); err != nil {
		return err
	}
	top := int32(-1)
	for piece, id := range v.ids {
		if id < 0 || id > maxID || int(id) > 2*len(v.ids)+1<<16 {
			return o.faultf("piece %q has id %d, which %d pieces do not need", piece, id, len(v.ids))
		}
		top = max(top, id)
		v.bytes += len(piece)
	}
	v.size = len(v.ids)
	v.pieces = make([]string, top+1)
	taken := make([]bool, top+1)
	for piece, id := range v.ids {
		if taken[id] {
			return o.faultf("pieces %q and %q have id %d", min(piece, v.pieces[id]), max(piece, v.pieces[id]), id)
		}
		taken[id], v.pieces[id] = true, piece
	}
	return nil
}

// add gives a piece beyond the model's its id.
func (v *vocabulary) add(piece string, id int32) {
	v.ids[piece] = id
	for int(id) >= len(v.pieces) {
		v.pieces = append(v.pieces, "")
	}
	v.pieces[id] = piece
}

// scored is a piece of a unigram vocabulary: ["piece", -1.5].
type scored struct {
	piece string
	score float64
}

// UnmarshalJSON reads the pair.
func (s *scored) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return errors.New("not a pair")
	}
	if err := json.Unmarshal(pair[0], &s.piece); err != nil {
		return err
	}
	return json.Unmarshal(pair[1], &s.score)
}
