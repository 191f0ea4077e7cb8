package encode

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
)

// Survey is what is known of texts before they are encoded.
type Survey struct {
	Texts int
	Bytes int64 // of titles and texts
	// Sum is a SHA-256 of all texts, ids and payloads in their order: the tag of a
	// spool that is to go on with the same texts only.
	Sum string
}

// SurveyTexts goes through texts that can be gone through again. It takes little of
// the time that encoding them does, and finds what would end that only after hours:
// a text that cannot be read, an id that comes twice or is missing.
//
// Ids are held in memory meanwhile.
func SurveyTexts(texts iter.Seq2[Text, error]) (*Survey, error) {
	s, h := new(Survey), sha256.New()
	rows := map[string]int{}
	var head []byte
	for t, err := range texts {
		if err != nil {
			return nil, err
		}
		if s.Texts > 0 && (t.ID == "") != (len(rows) == 0) {
			return nil, &TextError{Row: s.Texts, ID: t.ID, Err: fmt.Errorf("some texts have an id and others have none")}
		}
		if t.ID != "" {
			if first, ok := rows[t.ID]; ok {
				return nil, &TextError{Row: s.Texts, ID: t.ID, Err: fmt.Errorf("text %d has this id too", first)}
			}
			rows[t.ID] = s.Texts
		}
		head = head[:0]
		for _, part := range []int{len(t.ID), len(t.Title), len(t.Text), len(t.Payload)} {
			head = binary.LittleEndian.AppendUint64(head, uint64(part))
		}
		h.Write(head)
		for _, part := range []string{t.ID, t.Title, t.Text} {
			h.Write([]byte(part))
		}
		h.Write(t.Payload)
		s.Texts++
		s.Bytes += int64(len(t.Title) + len(t.Text))
	}
	s.Sum = hex.EncodeToString(h.Sum(nil))
	return s, nil
}
