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

// Survey is the result of reading all texts before they are encoded.
type Survey struct {
	Texts int
	Bytes int64 // of titles and texts
	// Sum is a SHA-256 of all texts, ids and payloads in their order.
	Sum string

	checksums []uint64 // checksums of the texts, for this process
	places    places
}

// SurveyTexts reads a sequence of texts that can be iterated again. It takes a fraction of
// the time of encoding, and finds errors that would otherwise end it after hours:
// a text that cannot be read, a document that cannot be stored ([vectors.CheckDocument]), an id that
// is missing or occurs twice.
//
// It holds the ids in memory, and the survey twelve bytes per text.
func SurveyTexts(texts iter.Seq2[Text, error]) (*Survey, error) {
	return surveyTexts(func(yield func(inspectedText, error) bool) {
		for t, err := range texts {
			if !yield(inspect(t), err) {
				return
			}
		}
	})
}

// inspectedText is a text with the results of the checks that need no other text.
type inspectedText struct {
	Text
	fault    error // why it cannot be stored. nil means that it can
	checksum uint64
}

// inspect checks a text by itself. It may run on several goroutines.
func inspect(t Text) inspectedText { return inspectedText{t, t.checkStorable(false), t.checksum()} }

// surveyTexts is SurveyTexts for texts that were inspected.
func surveyTexts(texts iter.Seq2[inspectedText, error]) (*Survey, error) {
	s, h := new(Survey), sha256.New()
	w := bufio.NewWriterSize(h, 64<<10)
	var checker textChecker
	for inspected, err := range texts {
		t := &inspected.Text
		if err == nil {
			err = checker.checkNext(t, inspected.fault)
		}
		if err != nil {
			return nil, err
		}
		t.write(w)
		s.checksums = append(s.checksums, inspected.checksum)
		s.Texts++
		s.Bytes += int64(len(t.Title) + len(t.Text))
	}
	_ = w.Flush() // writing to a hash never fails
	s.Sum, s.places = hex.EncodeToString(h.Sum(nil)), checker.places
	return s, nil
}

// ErrorAt returns an error of the text of a row, with its place.
func (s *Survey) ErrorAt(row int, id string, err error) *TextError {
	t := Text{ID: id, From: s.places.get(row)}
	return t.ErrorAt(row, err)
}

// textChecker checks the texts of a stream against those before, and keeps their places.
type textChecker struct {
	texts  int            // so far
	rows   map[string]int // rows by ids
	places places
}

// checkNext returns an error if the next text cannot be stored: fault, the error of the text by itself, or
// the error of an id that an earlier text has too, or that only some texts have.
func (r *textChecker) checkNext(t *Text, fault error) error {
	row := r.texts
	if fault != nil {
		return t.ErrorAt(row, fault)
	}
	if row > 0 && (t.ID == "") != (len(r.rows) == 0) {
		return t.ErrorAt(row, errors.New("some texts have an id and others have none"))
	}
	if t.ID != "" {
		if first, ok := r.rows[t.ID]; ok {
			from := r.places.get(first)
			if from.Path == t.From.Path && from.Line+from.Row > 0 {
				from.Path = "" // the error names it already
			}
			return t.ErrorAt(row, &SameIDError{First: first, From: from})
		}
		if r.rows == nil {
			r.rows = map[string]int{}
		}
		r.rows[t.ID] = row
	}
	r.places.add(t.From)
	r.texts++
	return nil
}

// places holds the places of texts by rows, in four bytes per text.
type places struct {
	numbers []int32 // lines, or rows in a file
	paths   []placePath
}

// placePath is the path of consecutive rows.
type placePath struct {
	first int // the first of these rows
	path  string
	lines bool // the numbers are lines
}

// add appends the place of the next row.
func (p *places) add(place Place) {
	path := placePath{len(p.numbers), place.Path, place.Line > 0}
	if n := len(p.paths); n == 0 || p.paths[n-1].path != path.path || p.paths[n-1].lines != path.lines {
		p.paths = append(p.paths, path)
	}
	p.numbers = append(p.numbers, int32(min(max(place.Line, place.Row), math.MaxInt32)))
}

// get returns the place of a row; the zero place means that it is unknown.
func (p *places) get(row int) (place Place) {
	if row < 0 || row >= len(p.numbers) {
		return place
	}
	i := sort.Search(len(p.paths), func(i int) bool { return p.paths[i].first > row }) - 1
	if place.Path = p.paths[i].path; p.paths[i].lines {
		place.Line = int(p.numbers[row])
	} else {
		place.Row = int(p.numbers[row])
	}
	return place
}

// SameIDError reports an id that occurs twice: the text of row First, from 0, has it too.
type SameIDError struct {
	First int
	From  Place
}

// Error reads like: corpus.jsonl: line 3 has this id too.
func (e *SameIDError) Error() string {
	first := &TextError{Path: e.From.Path, Line: e.From.Line, Row: -1}
	if first.Line == 0 {
		first.Row = e.From.errorRow(e.First)
	}
	return first.location() + " has this id too"
}

// write writes the text, its id and its payload, with their lengths, so that different texts write
// different bytes.
func (t *Text) write(w io.Writer) {
	var head [32]byte
	for i, length := range []int{len(t.ID), len(t.Title), len(t.Text), len(t.Payload)} {
		binary.LittleEndian.PutUint64(head[8*i:], uint64(length))
	}
	_, _ = w.Write(head[:])
	for _, field := range []string{t.ID, t.Title, t.Text} {
		_, _ = io.WriteString(w, field)
	}
	_, _ = w.Write(t.Payload)
}

// checksumSeed makes checksums of texts valid in this process only.
var checksumSeed = maphash.MakeSeed()

// checksum returns a hash of the text that is valid in this process.
func (t *Text) checksum() uint64 {
	var h maphash.Hash
	h.SetSeed(checksumSeed)
	t.write(&h)
	return h.Sum64()
}

// VerifyUnchanged yields texts that are read again, and checks that they are those of the survey. At the
// first difference it ends with an error, [vectors.ErrChanged].
func (s *Survey) VerifyUnchanged(texts iter.Seq2[Text, error]) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		row := 0
		for t, err := range texts {
			if err == nil && row == s.Texts {
				err = t.ErrorAt(row, fmt.Errorf("%w: there were %d texts", vectors.ErrChanged, s.Texts))
			} else if err == nil && t.checksum() != s.checksums[row] {
				err = t.ErrorAt(row, fmt.Errorf("%w: this is another text than when all were read", vectors.ErrChanged))
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
			err := fmt.Errorf("%w: there are %d texts, there were %d", vectors.ErrChanged, row, s.Texts)
			yield(Text{}, &TextError{Row: -1, Err: err})
		}
	}
}
