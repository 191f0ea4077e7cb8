package encode

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"math"
	"sort"

	"github.com/plaid-ir/plaid/vectors"
)

// Survey is what is known of texts before they are encoded.
type Survey struct {
	Texts int
	Bytes int64 // of titles and texts
	// Sum is a SHA-256 of all texts, ids and payloads in their order.
	Sum string

	sums   []uint64 // of each text
	places places
}

// SurveyTexts goes through texts that can be gone through again. It takes little of
// the time that encoding them does, and finds what would end that only after hours:
// a text that cannot be read, a document that cannot be stored ([vectors.CheckDocument]), an id that
// comes twice or is missing.
//
// Ids are held in memory meanwhile, and twelve bytes a text as long as the survey.
func SurveyTexts(texts iter.Seq2[Text, error]) (*Survey, error) {
	return surveyTexts(func(yield func(seenText, error) bool) {
		for t, err := range texts {
			if !yield(see(t), err) {
				return
			}
		}
	})
}

// seenText is a text with all that is known of it without the other texts.
type seenText struct {
	Text
	fault error // why it cannot be stored
	sum   uint64
}

// see may run on several goroutines.
func see(t Text) seenText { return seenText{t, t.check(false), t.sum()} }

func surveyTexts(texts iter.Seq2[seenText, error]) (*Survey, error) {
	s, h := new(Survey), sha256.New()
	w := bufio.NewWriterSize(h, 64<<10)
	var roll roll
	for seen, err := range texts {
		t := &seen.Text
		if err == nil {
			err = roll.note(t, seen.fault)
		}
		if err != nil {
			return nil, err
		}
		t.write(w)
		s.sums = append(s.sums, seen.sum)
		s.Texts++
		s.Bytes += int64(len(t.Title) + len(t.Text))
	}
	_ = w.Flush() // a hash takes all
	s.Sum, s.places = hex.EncodeToString(h.Sum(nil)), roll.places
	return s, nil
}

// Fault is an error of the text of a row, with its place.
func (s *Survey) Fault(row int, id string, err error) *TextError {
	t := Text{ID: id, From: s.places.place(row)}
	return t.Fault(row, err)
}

// roll is the texts of a stream that were seen.
type roll struct {
	n      int
	rows   map[string]int // of ids
	places places
}

// note refuses a text that cannot be stored, for which there is a fault, or not together with those
// before it.
func (r *roll) note(t *Text, fault error) error {
	row := r.n
	if fault != nil {
		return t.Fault(row, fault)
	}
	if row > 0 && (t.ID == "") != (len(r.rows) == 0) {
		return t.Fault(row, errors.New("some texts have an id and others have none"))
	}
	if t.ID != "" {
		if first, ok := r.rows[t.ID]; ok {
			from := r.places.place(first)
			if from.Path == t.From.Path && from.Line+from.Row > 0 {
				from.Path = "" // it is named already
			}
			return t.Fault(row, &SameIDError{First: first, From: from})
		}
		if r.rows == nil {
			r.rows = map[string]int{}
		}
		r.rows[t.ID] = row
	}
	r.places.add(t.From)
	r.n++
	return nil
}

// places are those of texts, by rows.
type places struct {
	numbers []int32 // of lines, or of rows in a file
	paths   []placePath
}

// placePath is a path, and the first row that has it.
type placePath struct {
	first int
	path  string
	lines bool // numbers are of lines
}

func (p *places) add(at Place) {
	own := placePath{len(p.numbers), at.Path, at.Line > 0}
	if n := len(p.paths); n == 0 || p.paths[n-1].path != own.path || p.paths[n-1].lines != own.lines {
		p.paths = append(p.paths, own)
	}
	p.numbers = append(p.numbers, int32(min(max(at.Line, at.Row), math.MaxInt32)))
}

// place returns the place of a row, zero where it is not known.
func (p *places) place(row int) (at Place) {
	if row < 0 || row >= len(p.numbers) {
		return at
	}
	i := sort.Search(len(p.paths), func(i int) bool { return p.paths[i].first > row }) - 1
	if at.Path = p.paths[i].path; p.paths[i].lines {
		at.Line = int(p.numbers[row])
	} else {
		at.Row = int(p.numbers[row])
	}
	return at
}

// SameIDError is of an id that comes twice: the text of row First, from 0, has it.
type SameIDError struct {
	First int
	From  Place
}

func (e *SameIDError) Error() string {
	first := &TextError{Path: e.From.Path, Line: e.From.Line, Row: -1}
	if first.Line == 0 {
		first.Row = e.From.row(e.First)
	}
	return first.place() + " has this id too"
}

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
				err = t.Fault(row, fmt.Errorf("%w: there were %d texts", vectors.ErrChanged, s.Texts))
			} else if err == nil && t.sum() != s.sums[row] {
				err = t.Fault(row, fmt.Errorf("%w: this is another text than when all were read", vectors.ErrChanged))
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
