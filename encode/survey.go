package encode

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"io"
	"iter"

	"github.com/plaid-ir/plaid/vectors"
)

// Survey is what is known of texts before they are encoded.
type Survey struct {
	Texts int
	Bytes int64 // of titles and texts
	// Sum is a SHA-256 of all texts, ids and payloads in their order: the tag of a
	// spool that is to go on with the same texts only.
	Sum string

	sums []uint64 // of each text
}

// SurveyTexts goes through texts that can be gone through again. It takes little of
// the time that encoding them does, and finds what would end that only after hours:
// a text that cannot be read, an id that comes twice or is missing.
//
// Ids are held in memory meanwhile, and eight bytes a text as long as the survey.
func SurveyTexts(texts iter.Seq2[Text, error]) (*Survey, error) {
	s, h := new(Survey), sha256.New()
	rows := map[string]int{}
	for t, err := range texts {
		if err != nil {
			return nil, err
		}
		if s.Texts > 0 && (t.ID == "") != (len(rows) == 0) {
			return nil, &TextError{Row: s.Texts, ID: t.ID, Err: fmt.Errorf("some texts have an id and others have none")}
		}
		if t.ID != "" {
			if first, ok := rows[t.ID]; ok {
				return nil, &TextError{Row: s.Texts, ID: t.ID, Err: &SameIDError{first}}
			}
			rows[t.ID] = s.Texts
		}
		t.write(h)
		s.sums = append(s.sums, t.sum())
		s.Texts++
		s.Bytes += int64(len(t.Title) + len(t.Text))
	}
	s.Sum = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// SameIDError is of an id that comes twice: the text of row First, from 0, has it.
type SameIDError struct{ First int }

func (e *SameIDError) Error() string { return fmt.Sprintf("text %d has this id too", e.First+1) }

// write writes all of a text, so that no other text has the same bytes.
func (t *Text) write(w io.Writer) {
	var head [32]byte
	for i, part := range []int{len(t.ID), len(t.Title), len(t.Text), len(t.Payload)} {
		binary.LittleEndian.PutUint64(head[8*i:], uint64(part))
	}
	_, _ = w.Write(head[:])
	for _, part := range []string{t.ID, t.Title, t.Text} {
		_, _ = io.WriteString(w, part)
	}
	_, _ = w.Write(t.Payload)
}

var sumSeed = maphash.MakeSeed()

// sum tells a text from others, in this process.
func (t *Text) sum() uint64 {
	var h maphash.Hash
	h.SetSeed(sumSeed)
	t.write(&h)
	return h.Sum64()
}

// Same is texts that are gone through once more, which must be those of the survey. It ends
// at the first one that is another with an error, [vectors.ErrChanged].
func (s *Survey) Same(texts iter.Seq2[Text, error]) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		row := 0
		for t, err := range texts {
			if err == nil && row == s.Texts {
				err = &TextError{Row: row, ID: t.ID, Err: fmt.Errorf("%w: there were %d texts", vectors.ErrChanged, s.Texts)}
			} else if err == nil && t.sum() != s.sums[row] {
				err = &TextError{Row: row, ID: t.ID, Err: fmt.Errorf("%w: this is another text than when all were read", vectors.ErrChanged)}
			}
			if err != nil {
				yield(Text{}, err)
				return
			}
			row++
			if !yield(t, nil) {
				return
			}
		}
		if row < s.Texts {
			yield(Text{}, &TextError{Row: -1, Err: fmt.Errorf("%w: there are %d texts, there were %d", vectors.ErrChanged, row, s.Texts)})
		}
	}
}
