package index

import (
	"context"
	"fmt"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

// A document is stored under one ordinal, or as passages, each under an ordinal of its own. The
// payload of a passage names its document ([vectors.PassageField]). Every index keeps these
// invariants:
//
//  1. The tree of ids has the id of each live ordinal, and the id of each document of passages.
//     Keys are unique, so these ids are all different.
//  2. The id of a passage is that of its document, "#" and the number of the passage.
//  3. Passages of a document are next to each other: between the first and the last of them
//     there are only ordinals that are deleted. Their numbers ascend.
//  4. A document is added and replaced as a whole, with all of its passages. Conditions and ids of
//     passages may delete some of them; it is gone with the last.
//
// [Admission] alone decides which documents may be added.

// fieldPassageOf has the id of a passage's document, fieldPassageNumber its number. Conditions may
// name them even if there are no passages.
var (
	fieldPassageOf     = condition.MakeField(vectors.PassageField, "of")
	fieldPassageNumber = condition.MakeField(vectors.PassageField, "n")
)

// Passages returns the live ordinals that are passages. Do not change the bitmap.
func (s *Snapshot) Passages() *roaring.Bitmap { return s.fileSnapshot.Passages() }

// Documents returns the number of live documents; a document of several passages counts once.
func (s *Snapshot) Documents() int {
	state := s.State()
	return int(state.Documents())
}

// PassageOf returns the id of the document that a passage belongs to, and the number of the
// passage, for an ordinal in [Snapshot.Passages].
func (s *Snapshot) PassageOf(ordinal uint32) (id string, number int) {
	return vectors.SplitPassageID(s.ID(ordinal))
}

// DocumentOf returns the id of the document that a live ordinal belongs to: the id of the ordinal
// itself unless it is a passage.
func (s *Snapshot) DocumentOf(ordinal uint32) (id string) {
	if id = s.ID(ordinal); s.Passages().Contains(ordinal) {
		id, _ = vectors.SplitPassageID(id)
	}
	return id
}

// PassagesOf returns the ordinals of a document by its id: those of its passages in the order of
// their numbers, or its own. The result is empty if the id is not that of a document: it may be the
// id of a passage ([Snapshot.Ordinal]).
func (s *Snapshot) PassagesOf(id string) (ordinals []uint32, err error) {
	ordinals, isPassage, err := s.findOrdinals(id)
	if isPassage {
		ordinals = nil
	}
	return ordinals, err
}

// FindOtherSpelling returns an id of the index that is another Unicode form of the given id
// ([condition.Spellings]), or "".
func (s *Snapshot) FindOtherSpelling(id string) (string, error) {
	for _, other := range condition.Spellings(id) {
		if ordinals, _, err := s.findOrdinals(other); err != nil || len(ordinals) > 0 {
			return other, err
		}
	}
	return "", nil
}

// NotFoundError returns an [ErrNotFound] for an id. It names an id of the index that looks the same
// ([Snapshot.FindOtherSpelling]).
func (s *Snapshot) NotFoundError(id string) error {
	if other, err := s.FindOtherSpelling(id); err != nil {
		return err
	} else if other != "" {
		return fmt.Errorf("%w: %.100q; the index has %.200s, which looks the same "+
			"(Unicode writes é as one character or two)",
			ErrNotFound, id, strconv.QuoteToASCII(other))
	}
	if len(id) > 100 {
		return fmt.Errorf("%w: %.100q… (%d bytes)", ErrNotFound, id, len(id))
	}
	return fmt.Errorf("%w: %q", ErrNotFound, id)
}

// findOrdinals returns the live ordinals of an id: those of a document, or the one of a passage.
func (s *Snapshot) findOrdinals(id string) (ordinals []uint32, isPassage bool, err error) {
	first, count, hasPassages, err := s.fileSnapshot.PassageRange(id)
	if err != nil {
		return nil, false, err
	}
	if hasPassages {
		it := s.Passages().Iterator()
		for it.AdvanceIfNeeded(first); it.HasNext() && it.PeekNext()-first < count; {
			ordinals = append(ordinals, it.Next())
		}
		return ordinals, false, nil
	}
	ordinal, ok, err := s.Ordinal(id)
	if err != nil || !ok {
		return nil, false, err
	}
	return []uint32{ordinal}, s.Passages().Contains(ordinal), nil
}

// OrdinalsOfIDs returns the live ordinals of ids: the id of a document selects all of its passages
// ([Snapshot.PassagesOf]), the id of a passage that passage alone. missing are the ids without
// ordinals, in order.
func (s *Snapshot) OrdinalsOfIDs(
	ctx context.Context, ids []string,
) (docs *roaring.Bitmap, missing []string, err error) {
	docs = roaring.New()
	for i, id := range ids {
		if i%1024 == 1023 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		ordinals, err := s.ordinalsOf(id)
		if err != nil {
			return nil, nil, err
		}
		if docs.AddMany(ordinals); len(ordinals) == 0 {
			missing = append(missing, id)
		}
	}
	return docs, missing, nil
}

// ordinalsOf returns the live ordinals of an id; see findOrdinals.
func (s *Snapshot) ordinalsOf(id string) ([]uint32, error) {
	ordinals, _, err := s.findOrdinals(id)
	return ordinals, err
}

// parentFromPayload returns the id of the document that the payload makes the id a passage of; ""
// means that it is not a passage. i is the number of the document, for errors.
func parentFromPayload(i int, id string, payload []byte) (string, error) {
	p, err := vectors.PassageFromPayload(id, payload)
	switch {
	case err != nil:
		return "", documentError(i, id, err)
	case p == nil:
		return "", nil
	}
	return p.ParentID, nil
}

// withPassageField returns the payload that replaces that of an ordinal: with the field of a
// passage if the ordinal is one. A payload cannot turn a document into a passage.
func (s *Snapshot) withPassageField(ordinal uint32, payload []byte) ([]byte, error) {
	id, isPassage := s.ID(ordinal), s.Passages().Contains(ordinal)
	passage, err := vectors.PassageFromPayload(id, payload)
	if err == nil && passage != nil && !isPassage {
		err = fmt.Errorf("%w: field %s would make it a passage of %q: replace it by the passages of that document",
			ErrOption, vectors.PassageField, passage.ParentID)
	}
	if err != nil || passage != nil || !isPassage {
		return payload, err
	}
	stored, err := s.Payload(ordinal)
	if err != nil {
		return nil, err
	}
	passage, err = vectors.PassageFromPayload(id, stored)
	if err != nil || passage == nil {
		return payload, err
	}
	return passage.Payload(payload)
}
