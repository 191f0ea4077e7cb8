package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/wreck"
	"github.com/plaid-ir/plaid/vectors"
)

// SalvageOptions for Salvage. The zero value, or nil, takes only documents that
// are known to be live.
type SalvageOptions struct {
	// WithDeleted takes documents of which it cannot be told any more if they were
	// deleted; without it, such an index is refused.
	WithDeleted bool
	// Memory as for Build.
	Memory int64
	// LockTimeout and Logger as for Open.
	LockTimeout time.Duration
	Logger      *slog.Logger
	// Progress, where set, is told how far a stage is.
	Progress func(Progress)
}

// SalvageReport says what Salvage found and what it lost.
type SalvageReport struct {
	// Transaction is the commit that the file was read as of.
	Transaction wreck.Transaction `json:"transaction"`
	// Docs, Passages and Tokens of the new index.
	Docs     int    `json:"docs"`
	Passages int    `json:"passages"`
	Tokens   uint64 `json:"tokens"`
	// LostDocs counts the documents, or passages, of Lost.
	LostDocs int64  `json:"lost_docs"`
	Lost     []Lost `json:"lost"`
	// LostPayloads are the ids of documents that are in the new index without
	// their payload.
	LostPayloads []string `json:"lost_metadata"`
	// UnknownPayloads counts the payloads that are lost of documents of which nothing
	// says any more that they had one.
	UnknownPayloads int64 `json:"unknown_metadata"`
	// UncertainPayloads are the ids of documents in the new index that have no payload
	// there and may have had one: what tells that is lost.
	UncertainPayloads []string `json:"uncertain_metadata"`
	// Uncertain are the ids of documents in the new index that may have been
	// deleted.
	Uncertain []string `json:"uncertain"`
	// StateLost: the record of the counters is damaged, so that documents at the
	// end of which no id is left would not be missed.
	StateLost bool `json:"state_lost"`
	// Faults are what was found damaged.
	Faults []string `json:"faults"`
}

// Complete reports whether the new index has every document and payload of the
// old one, and no other.
func (r *SalvageReport) Complete() bool {
	return r.LostDocs == 0 && len(r.LostPayloads) == 0 && r.UnknownPayloads == 0 && len(r.UncertainPayloads) == 0 && len(r.Uncertain) == 0 && !r.StateLost && !r.Transaction.DamagedMeta
}

// Lost is a run of documents that are not in the new index.
type Lost struct {
	// First ordinal, and how many documents there were from it to Last that were
	// not known to be deleted.
	First uint32 `json:"first_ordinal"`
	Last  uint32 `json:"last_ordinal"`
	Docs  int64  `json:"docs"`
	// IDs are those that are known of them.
	IDs []string `json:"ids"`
	// Why they are lost.
	Why string `json:"why"`
}

// Salvage writes a new index at out from what can be read of a damaged one:
// every live document whose arrays pass their checksums, as it is, with its id,
// and its payload if that passes too; in the order of insertion, under new
// ordinals. Nothing is encoded again; postings are made anew. The damaged index
// is not changed.
//
// Where damage is not to be repaired there is an error, and nothing at out: a
// lost codec or header, tombstones that are lost together with ids (see
// SalvageOptions.WithDeleted), a state record that is lost beside the leftovers
// of an interrupted writer. The report is not nil where it says what was found.
//
// Errors: those of [wreck.Open], [storage.ErrExists], and what writing
// fails with.
func Salvage(ctx context.Context, in, out string, opts *SalvageOptions) (r *SalvageReport, err error) {
	o := given(opts)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	if _, err := os.Lstat(out); err == nil {
		return nil, fmt.Errorf("%s: %w; what is salvaged goes into a new file", out, storage.ErrExists)
	}
	w, err := wreck.Open(ctx, in, o.LockTimeout)
	if w == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	r = &SalvageReport{Transaction: w.Transaction(), Lost: []Lost{}, LostPayloads: []string{}, UncertainPayloads: []string{}, Uncertain: []string{}}
	defer func() { r.Faults = append([]string{}, w.Faults()...) }()
	if err != nil {
		return r, err
	}
	if !w.Certain() && !o.WithDeleted {
		return r, fmt.Errorf("%s: %w: the tombstones are lost, and not all ids are left to tell which documents were deleted; "+
			"--with-deleted (SalvageOptions.WithDeleted) takes and lists them", in, storage.ErrCorrupt)
	}
	_, known := w.State()
	r.StateLost, r.UnknownPayloads = !known, w.UnknownPayloads()
	s := &salvage{SalvageOptions: o, damaged: w, report: r}
	if err := s.survey(ctx); err != nil {
		return r, err
	}
	if s.docs == 0 && r.LostDocs > 0 {
		return r, fmt.Errorf("%s: %w: not one document can be read", in, storage.ErrCorrupt)
	}
	b := BuildOptions{LockTimeout: o.LockTimeout, Logger: o.Logger}
	return r, made(ctx, out, b, func(file *storage.File, _ bool) error { return s.copyAll(ctx, file) })
}

// salvage is a salvage at work.
type salvage struct {
	SalvageOptions
	damaged *wreck.Reader
	report  *SalvageReport

	lost *roaring.Bitmap   // documents whose arrays are damaged
	last map[string]uint32 // the ordinal that counts, of ids that are there twice
	// from maps each id of a document or passage to the first ordinal of the newest document that
	// uses it; nil means that all deletions are known, so no id is used twice.
	from    map[string]uint32
	passage string // id of the ordinal that was copied last, if that is a passage
	docs    int
}

// survey finds out which documents are lost.
func (s *salvage) survey(ctx context.Context) error {
	seed := maphash.MakeSeed()
	type mark struct {
		hash    uint64
		ordinal uint32
	}
	var marks []mark
	gaps := roaring.New()
	next := uint32(0)
	s.lost = roaring.New()
	for i := range s.damaged.Chunks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ch, err := s.damaged.Chunk(i)
		if err != nil {
			return fmt.Errorf("%s: %w", s.damaged.Path(), err)
		}
		table := ch.Table
		s.noteGap(gaps, next, table.First)
		next = table.First + uint32(len(table.IDs))
		s.loseDamaged(ch)
		for d, id := range table.IDs {
			if ordinal := table.First + uint32(d); s.wanted(ordinal, id) {
				marks = append(marks, mark{maphash.String(seed, id), ordinal})
				s.docs++
			}
		}
		s.tellProgress("check", next)
	}
	s.noteGap(gaps, next, s.damaged.Docs())
	if err := s.loseGaps(ctx, gaps); err != nil {
		return err
	}
	slices.SortFunc(marks, func(a, b mark) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.ordinal, b.ordinal))
	})
	twice := roaring.New()
	for i := 1; i < len(marks); i++ {
		if marks[i].hash == marks[i-1].hash {
			twice.Add(marks[i-1].ordinal)
			twice.Add(marks[i].ordinal)
		}
	}
	if err := s.resolveTwins(ctx, twice); err != nil || s.damaged.Certain() {
		return err
	}
	return s.resolveDocuments(ctx)
}

func (s *salvage) tellProgress(stage string, done uint32) {
	tell(s.Progress, Progress{stage, int64(done), int64(s.damaged.Docs()), "documents"})
}

// wanted reports whether a document is to be copied; a place without an id was
// given up by compaction.
func (s *salvage) wanted(ordinal uint32, id string) bool {
	return id != "" && s.damaged.Standing(ordinal) != wreck.Dead && !s.lost.Contains(ordinal)
}

// noteGap notes the documents between two tables whose own table is lost.
func (s *salvage) noteGap(gaps *roaring.Bitmap, from, to uint32) {
	for o := from; o < to; o++ {
		if s.damaged.Standing(o) != wreck.Dead {
			gaps.Add(o)
		}
	}
}

// loseDamaged reports the documents of a chunk whose arrays are damaged, those that follow each other together.
func (s *salvage) loseDamaged(ch *wreck.Chunk) {
	if len(ch.Lost) == 0 {
		return
	}
	var l Lost
	end := func() {
		if l.Docs > 0 {
			s.noteLost(l)
		}
	}
	for d, id := range ch.Table.IDs {
		ordinal := ch.Table.First + uint32(d)
		why := ch.Lost[d]
		if why == nil || !s.wanted(ordinal, id) {
			continue
		}
		if l.Docs == 0 || l.Last+1 != ordinal || l.Why != why.Error() {
			end()
			l = Lost{First: ordinal, Why: why.Error()}
		}
		l.Last, l.IDs = ordinal, append(l.IDs, id)
		l.Docs++
		s.lost.Add(ordinal)
	}
	end()
}

func (s *salvage) noteLost(l Lost) {
	s.report.Lost = append(s.report.Lost, l)
	s.report.LostDocs += l.Docs
}

// loseGaps reports runs of documents whose tables are lost, with the ids that
// are left of them.
func (s *salvage) loseGaps(ctx context.Context, gaps *roaring.Bitmap) error {
	ids := s.damaged.IDs(gaps)
	if err := ctx.Err(); err != nil {
		return err
	}
	var l *Lost
	for it := gaps.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		if l == nil || ordinal != l.Last+1 {
			if l != nil {
				s.noteLost(*l)
			}
			l = &Lost{First: ordinal, IDs: []string{}, Why: "the chunk that holds them, or its document table, is lost"}
		}
		l.Last = ordinal
		l.Docs++
		if id, ok := ids[ordinal]; ok {
			l.IDs = append(l.IDs, id)
		}
	}
	if l != nil {
		s.noteLost(*l)
	}
	return nil
}

// resolveTwins decides which of the documents with one id counts: the newest.
// It is given those whose ids may be alike.
func (s *salvage) resolveTwins(ctx context.Context, twice *roaring.Bitmap) error {
	if twice.IsEmpty() {
		return nil
	}
	s.last = map[string]uint32{}
	return s.each(ctx, func(table *storage.DocTable, _ *kernels.Chunk) error {
		for d, id := range table.IDs {
			ordinal := table.First + uint32(d)
			if !twice.Contains(ordinal) {
				continue
			}
			if old, ok := s.last[id]; ok {
				s.docs--
				s.noteLost(Lost{First: old, Last: old, Docs: 1, IDs: []string{id}, Why: fmt.Sprintf("document %d has the same id and is newer", ordinal)})
			}
			s.last[id] = ordinal
		}
		return nil
	})
}

// resolveDocuments decides which of several documents with one id counts, if deleted ones may be
// among them: the newest, with its passages.
func (s *salvage) resolveDocuments(ctx context.Context) error {
	from, document, passage, first := map[string]uint32{}, "", "", uint32(0)
	err := s.each(ctx, func(table *storage.DocTable, _ *kernels.Chunk) error {
		for d, id := range table.IDs {
			ordinal := table.First + uint32(d)
			if last, twice := s.last[id]; !s.wanted(ordinal, id) || twice && last != ordinal {
				continue
			}
			payload, err := s.damaged.Payload(ordinal) // a lost one is reported when it is copied
			parent := s.parentOf(ordinal, id, payload, err, passage)
			if parent == "" || parent != document || !follows(passage, id) {
				document, first = cmp.Or(parent, id), ordinal
			}
			if passage = ""; parent != "" {
				passage = id
			}
			from[document], from[id] = first, first
		}
		return nil
	})
	s.from = from
	return err
}

// each visits the chunks that have something to copy.
func (s *salvage) each(ctx context.Context, visit func(*storage.DocTable, *kernels.Chunk) error) error {
	for i := range s.damaged.Chunks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ch, err := s.damaged.Chunk(i)
		if err != nil { // it was sound before
			return fmt.Errorf("%s: %w", s.damaged.Path(), err)
		}
		if ch.Arrays == nil {
			continue
		}
		if err := visit(ch.Table, ch.Arrays); err != nil {
			return err
		}
	}
	return nil
}

func (s *salvage) copyAll(ctx context.Context, dst *storage.File) error {
	gen, err := putGeneration(dst, s.damaged.Header(), s.damaged.Codec(), s.damaged.Cutoffs())
	if err != nil {
		return err
	}
	stage := newStager(dst, gen, s.damaged.Header().Centroids, storage.State{}, s.Memory)
	err = s.each(ctx, func(table *storage.DocTable, ch *kernels.Chunk) error {
		for d := range table.IDs {
			if err := s.copyDoc(ctx, stage, table, ch, d); err != nil {
				return err
			}
		}
		s.tellProgress("salvage", table.First+uint32(len(table.IDs)))
		return nil
	})
	if err != nil {
		return err
	}
	return stage.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, st *storage.State) error {
		st.Live, st.LiveTokens = st.Docs, st.Tokens
		if old, ok := s.damaged.State(); ok { // the tokens do not tell which of them were clamped
			st.Clamped = min(old.Clamped, st.Tokens)
			st.AddedTokens, st.AddedSumSq = old.AddedTokens, old.AddedSumSq
		}
		s.report.Docs, s.report.Passages = stage.count(st)
		s.report.Tokens = st.Tokens
		var built Built
		if s.damaged.Note(noteBuilt, &built) {
			if err := tx.PutNote(noteBuilt, built); err != nil {
				return err
			}
		}
		if d := s.damaged.Defaults(); d != nil {
			if err := tx.PutDefaults(gen, d); err != nil {
				return err
			}
		}
		return tx.MakeCurrent(gen)
	})
}

func (s *salvage) copyDoc(ctx context.Context, stage *stager, table *storage.DocTable, ch *kernels.Chunk, d int) error {
	ordinal, id := table.First+uint32(d), table.IDs[d]
	if !s.wanted(ordinal, id) {
		return nil
	}
	if last, twice := s.last[id]; twice && last != ordinal {
		return nil
	}
	if err := vectors.CheckID(id); err != nil {
		s.noteLost(Lost{First: ordinal, Last: ordinal, Docs: 1, IDs: []string{id}, Why: err.Error()})
		return nil
	}
	payload, err := s.damaged.Payload(ordinal)
	if cut := ctx.Err(); cut != nil {
		return cut
	}
	parent := s.parentOf(ordinal, id, payload, err, s.passage)
	if s.from[id] > ordinal || s.from[parent] > ordinal {
		s.docs--
		s.noteLost(Lost{First: ordinal, Last: ordinal, Docs: 1, IDs: []string{id}, Why: "a newer document has its id, or that of its document"})
		return nil
	}
	switch {
	case err != nil:
		s.report.LostPayloads = append(s.report.LostPayloads, id)
	case payload == nil && !s.damaged.PayloadsKnown() && (s.report.StateLost || s.report.UnknownPayloads > 0):
		s.report.UncertainPayloads = append(s.report.UncertainPayloads, id)
	}
	if s.damaged.Standing(ordinal) == wreck.Uncertain {
		s.report.Uncertain = append(s.report.Uncertain, id)
	}
	if s.passage = ""; parent != "" {
		s.passage = id
	}
	if parent != "" && payload == nil { // the payload of a passage has to say so
		p := vectors.Passage{Of: parent}
		_, p.Number = vectors.SplitPassageID(id)
		if payload, err = p.Payload(nil); err != nil {
			return err
		}
	}
	return stage.stage(ctx, encoded{id: id, parent: parent, payload: payload, tokens: tokensOfChunk(ch, d, s.damaged.Codec())})
}

// parentOf returns the id of the document that an ordinal is a passage of, "" for none. If the
// bitmap of passages is lost, payloads tell. If the payload is lost too, the id tells whether the
// ordinal continues the document of the passage before it, which is "" if there is none.
func (s *salvage) parentOf(ordinal uint32, id string, payload []byte, lost error, before string) string {
	parent, n := vectors.SplitPassageID(id)
	if passages := s.damaged.Passages(); passages != nil {
		if n >= 0 && passages.Contains(ordinal) {
			return parent
		}
		return ""
	}
	if p, err := vectors.PassageOf(id, payload); err == nil && p != nil {
		return p.Of
	}
	if (lost != nil || payload == nil && !s.damaged.PayloadsKnown()) && follows(before, id) {
		return parent
	}
	return ""
}

// follows reports whether id is that of a later passage of the same document as before.
func follows(before, id string) bool {
	previous, last := vectors.SplitPassageID(before)
	parent, _ := vectors.SplitPassageID(id)
	return last >= 0 && previous == parent && checkOrder(before, id) == nil
}
