package command

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// survey reads all texts before the first one is encoded, if they can be read again. It finds their
// faults and their number.
func (s *spooling) survey(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	defer func() { s.texts.OnSkipped = nil }() // files are counted in the first pass only
	if !s.texts.Rereadable() {
		return nil
	}
	return s.retryWithPassages(func(passages bool) (err error) {
		s.surveyed, err = encode.SurveyTexts(s.admittedTexts(ctx, s.texts.Open(ctx, nil), passages))
		return err
	})
}

// retryWithPassages calls pass, which reads all texts. If some of them turn out to be passages, it
// calls pass again with passages true, so that the ids of all are compared.
func (s *spooling) retryWithPassages(pass func(passages bool) error) error {
	passages := s.texts.SplitsTexts()
	err := pass(passages)
	if errors.Is(err, errPassages) && !passages {
		s.skipped, s.skippedEndings = folder.Skipped{}, nil // the second pass counts them again
		err = pass(true)
	}
	return err
}

// errPassages reports that a text is a passage of a document.
var errPassages = errors.New("there are passages")

// prepare sets up the reading of texts for the encoder, and counts files that are not read.
func (s *spooling) prepare() error {
	model := s.encoder.Config()
	s.texts.Model = &model
	s.texts.OnSkipped = func(name string) {
		if s.skippedEndings == nil {
			s.skippedEndings = map[string]int{}
		}
		s.skippedEndings[strings.ToLower(filepath.Ext(name))]++
		s.skipped.Kinds++
		s.skipped.AddFile(name, "no kind of text by its name")
	}
	return s.texts.CheckModel()
}

// admittedTexts passes on the texts that may be stored. A passage goes on when all passages of its
// document are known. If passages is false, the first passage ends the texts with errPassages.
func (s *spooling) admittedTexts(
	ctx context.Context, texts iter.Seq2[encode.Text, error], passages bool,
) iter.Seq2[encode.Text, error] {
	stream := index.NewAdmission()
	return func(yield func(encode.Text, error) bool) {
		// group is a document, or the passages of one, as read so far; documents are their ids.
		var group []encode.Text
		var documents []index.Arrival
		passGroup := func() bool {
			err := admitGroup(ctx, stream, s.admit, documents, passages)
			if refused := (*index.ArrivalError)(nil); errors.As(err, &refused) {
				err = group[refused.Row].ErrorAt(-1, refused.Err)
			}
			for _, t := range group {
				if !yield(t, err) || err != nil {
					return false
				}
			}
			group, documents = group[:0], documents[:0]
			return true
		}
		for t, err := range texts {
			var p *vectors.Passage
			if err == nil && t.ID != "" {
				// Errors of PassageOf are reported later.
				if p, _ = vectors.PassageFromPayload(t.ID, t.Payload); p != nil && !passages {
					err = errPassages
				}
			}
			if err != nil {
				if passGroup() {
					yield(t, err)
				}
				return
			}
			// Pass the last group on if the text does not belong to it.
			document := index.Arrival{ID: t.ID}
			if p != nil {
				document.Parent = p.ParentID
			}
			if n := len(documents); n > 0 && (p == nil || documents[n-1].Parent != p.ParentID) && !passGroup() {
				return
			}
			// Add the text to the group, which is complete if the text is a whole document.
			group, documents = append(group, t), append(documents, document)
			if p == nil && !passGroup() {
				return
			}
		}
		passGroup()
	}
}

// admitGroup returns an error if documents, a single one or the passages of one, cannot be stored
// together with the earlier ones of the stream, or with the existing ones of the index.
func admitGroup(ctx context.Context, stream *index.Admission, admitStored func(context.Context, []index.Arrival) error,
	documents []index.Arrival, passages bool) error {
	if len(documents) == 0 || documents[0].ID == "" {
		return nil
	}
	if passages {
		duplicate, err := stream.Admit(ctx, documents, false)
		if duplicate {
			err = &index.ArrivalError{ID: documents[0].ID, Err: fmt.Errorf(
				"%w: a document or passage before it has this id, or that of its document", index.ErrDuplicateID)}
		}
		if err != nil {
			return err
		}
	}
	if admitStored == nil {
		return nil
	}
	return admitStored(ctx, documents)
}
