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

// SalvageOptions configures Salvage. The zero value, or nil, copies only documents that are known
// to be live.
type SalvageOptions struct {
	// WithDeleted also copies documents that may have been deleted, if the damage hides which ones
	// were; without it, such an index is refused.
	WithDeleted bool
	// Memory is as in [BuildOptions].
	Memory int64
	// LockTimeout and Logger are as in [Options].
	LockTimeout time.Duration
	Logger      *slog.Logger
	// Progress, if not nil, is called with the progress of each stage.
	Progress func(Progress)
}

// SalvageReport describes the damage that Salvage found, and the losses.
type SalvageReport struct {
	// Transaction is the commit that was read.
	Transaction wreck.Transaction `json:"transaction"`
	// Docs, Passages and Tokens count those of the new index.
	Docs     int    `json:"docs"`
	Passages int    `json:"passages"`
	Tokens   uint64 `json:"tokens"`
	// LostDocs counts the documents, or passages, in Lost.
	LostDocs int64           `json:"lost_docs"`
	Lost     []LostDocuments `json:"lost"`
	// LostPayloads are the ids of documents that the new index has without their payload.
	LostPayloads []string `json:"lost_metadata"`
	// UnknownPayloads counts the lost payloads of unknown documents: no record names the documents
	// that had them.
	UnknownPayloads int64 `json:"unknown_metadata"`
	// UncertainPayloads are the ids of documents that the new index has without a payload, and that
	// may have had one: the set of the documents with payloads is lost.
	UncertainPayloads []string `json:"uncertain_metadata"`
	// Uncertain are the ids of documents in the new index that may have been deleted.
	Uncertain []string `json:"uncertain"`
	// StateLost means that the record of the counters is damaged: if documents at the end left no
	// id, their loss is not noticed.
	StateLost bool `json:"state_lost"`
	// Faults describe the damage.
	Faults []string `json:"faults"`
}

// Complete reports whether the new index has exactly the documents and payloads of the old one.
func (r *SalvageReport) Complete() bool {
	lists := [][]string{r.LostPayloads, r.UncertainPayloads, r.Uncertain}
	nothingListed := !slices.ContainsFunc(lists, func(ids []string) bool { return len(ids) > 0 })
	return nothingListed && r.LostDocs == 0 && r.UnknownPayloads == 0 && !r.StateLost && !r.Transaction.DamagedMeta
}

// LostDocuments is a run of documents that the new index does not have.
type LostDocuments struct {
	// First and Last are the ordinals of the run, Docs the number of documents in it that were not
	// known to be deleted.
	First uint32 `json:"first_ordinal"`
	Last  uint32 `json:"last_ordinal"`
	Docs  int64  `json:"docs"`
	// IDs are the known ids of the documents.
	IDs []string `json:"ids"`
	// Why is the reason of the loss.
	Why string `json:"why"`
}

// Salvage writes a new index at out from the readable part of a damaged one: every live document
// whose arrays match their checksums, with its encoding and id, and with its payload if that
// matches its checksum too. The documents keep their order and get new ordinals. Nothing is encoded
// again; postings are computed again. Salvage does not change the damaged index.
//
// Damage that cannot be repaired is an error, and nothing is written to out: a lost codec or
// header; lost tombstones together with lost ids (see SalvageOptions.WithDeleted); a lost state
// record in a file with leftovers of an interrupted writer. The report is not nil if something was
// found.
//
// Errors: those of [wreck.Open], [storage.ErrExists], and those of writing.
func Salvage(ctx context.Context, in, out string, opts *SalvageOptions) (r *SalvageReport, err error) {
	o := valueOrZero(opts)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	if _, err := os.Lstat(out); err == nil {
		return nil, fmt.Errorf("%s: %w; salvage writes only to a new file", out, storage.ErrExists)
	}
	// Open the damaged index.
	w, err := wreck.Open(ctx, in, o.LockTimeout)
	if w == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	r = &SalvageReport{
		Transaction:       w.Transaction(),
		Lost:              []LostDocuments{},
		LostPayloads:      []string{},
		UncertainPayloads: []string{},
		Uncertain:         []string{},
	}
	defer func() { r.Faults = append([]string{}, w.Faults()...) }()
	if err != nil {
		return r, err
	}
	if !w.LivenessKnown() && !o.WithDeleted {
		return r, fmt.Errorf("%s: %w: the tombstones are lost, and too few ids are left to tell "+
			"which documents were deleted; --with-deleted (SalvageOptions.WithDeleted) copies and lists them",
			in, storage.ErrCorrupt)
	}
	// Find the losses, and copy the other documents.
	_, stateKnown := w.State()
	r.StateLost, r.UnknownPayloads = !stateKnown, w.UnknownPayloads()
	s := &salvage{SalvageOptions: o, reader: w, report: r}
	if err := s.survey(ctx); err != nil {
		return r, err
	}
	if s.docs == 0 && r.LostDocs > 0 {
		return r, fmt.Errorf("%s: %w: not one document can be read", in, storage.ErrCorrupt)
	}
	b := BuildOptions{LockTimeout: o.LockTimeout, Logger: o.Logger}
	return r, createAndFill(ctx, out, b, func(file *storage.File, _ bool) error { return s.copyAll(ctx, file) })
}

// salvage is a Salvage in progress.
type salvage struct {
	SalvageOptions
	reader *wreck.Reader
	report *SalvageReport

	lostDocs      *roaring.Bitmap   // ordinals whose arrays are damaged
	newestOrdinal map[string]uint32 // by id; only ids with several ordinals
	// newestFirst maps each id of a document or passage to the first ordinal of the newest document
	// with it. It is nil if all deletions are known, so that no id is used twice.
	newestFirst map[string]uint32
	lastPassage string // id of the ordinal that was copied last, if it is a passage; otherwise ""
	docs        int
}

// survey finds the lost documents and, among documents with the same id, the newest.
func (s *salvage) survey(ctx context.Context) error {
	seed := maphash.MakeSeed()
	type hashedID struct {
		hash    uint64
		ordinal uint32
	}
	var hashedIDs []hashedID
	gaps := roaring.New()
	// Read all chunks: find gaps and damaged arrays, and hash the ids of the other documents.
	next := uint32(0)
	s.lostDocs = roaring.New()
	for i := range s.reader.Chunks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ch, err := s.reader.Chunk(i)
		if err != nil {
			return fmt.Errorf("%s: %w", s.reader.Path(), err)
		}
		table := ch.Table
		s.addGap(gaps, next, table.First)
		next = table.First + uint32(len(table.IDs))
		s.reportDamaged(ch)
		for d, id := range table.IDs {
			if ordinal := table.First + uint32(d); s.isWanted(ordinal, id) {
				hashedIDs = append(hashedIDs, hashedID{maphash.String(seed, id), ordinal})
				s.docs++
			}
		}
		s.reportDocs("check", next)
	}
	s.addGap(gaps, next, s.reader.Docs())
	if err := s.reportGaps(ctx, gaps); err != nil {
		return err
	}
	// Find the ordinals whose ids may be equal: those with equal hashes.
	slices.SortFunc(hashedIDs, func(a, b hashedID) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.ordinal, b.ordinal))
	})
	sameHash := roaring.New()
	for i := 1; i < len(hashedIDs); i++ {
		if hashedIDs[i].hash == hashedIDs[i-1].hash {
			sameHash.Add(hashedIDs[i-1].ordinal)
			sameHash.Add(hashedIDs[i].ordinal)
		}
	}
	if err := s.resolveDuplicateIDs(ctx, sameHash); err != nil || s.reader.LivenessKnown() {
		return err
	}
	return s.resolveNewestDocuments(ctx)
}

// reportDocs reports the number of documents that a stage has done.
func (s *salvage) reportDocs(stage string, done uint32) {
	reportProgress(s.Progress, Progress{stage, int64(done), int64(s.reader.Docs()), "documents"})
}

// isWanted reports whether a document should be copied. An ordinal without an id is a hole that
// compaction left.
func (s *salvage) isWanted(ordinal uint32, id string) bool {
	return id != "" && s.reader.Liveness(ordinal) != wreck.Dead && !s.lostDocs.Contains(ordinal)
}

// addGap adds the documents between two tables to the gaps: their own table is lost.
func (s *salvage) addGap(gaps *roaring.Bitmap, from, to uint32) {
	for o := from; o < to; o++ {
		if s.reader.Liveness(o) != wreck.Dead {
			gaps.Add(o)
		}
	}
}

// reportDamaged reports the documents of a chunk with damaged arrays, one entry for each run of
// documents.
func (s *salvage) reportDamaged(ch *wreck.Chunk) {
	if len(ch.Damaged) == 0 {
		return
	}
	var run LostDocuments
	finishRun := func() {
		if run.Docs > 0 {
			s.addLost(run)
		}
	}
	for d, id := range ch.Table.IDs {
		ordinal := ch.Table.First + uint32(d)
		why := ch.Damaged[d]
		if why == nil || !s.isWanted(ordinal, id) {
			continue
		}
		if run.Docs == 0 || run.Last+1 != ordinal || run.Why != why.Error() {
			finishRun()
			run = LostDocuments{First: ordinal, Why: why.Error()}
		}
		run.Last, run.IDs = ordinal, append(run.IDs, id)
		run.Docs++
		s.lostDocs.Add(ordinal)
	}
	finishRun()
}

// addLost adds a run to the report.
func (s *salvage) addLost(l LostDocuments) {
	s.report.Lost = append(s.report.Lost, l)
	s.report.LostDocs += l.Docs
}

// reportGaps reports the runs of documents whose tables are lost, with the ids that the tree of ids
// still has for them.
func (s *salvage) reportGaps(ctx context.Context, gaps *roaring.Bitmap) error {
	ids := s.reader.IDs(gaps)
	if err := ctx.Err(); err != nil {
		return err
	}
	var run *LostDocuments
	for it := gaps.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		if run == nil || ordinal != run.Last+1 {
			if run != nil {
				s.addLost(*run)
			}
			run = &LostDocuments{
				First: ordinal,
				IDs:   []string{},
				Why:   "the chunk that holds them, or its document table, is lost",
			}
		}
		run.Last = ordinal
		run.Docs++
		if id, ok := ids[ordinal]; ok {
			run.IDs = append(run.IDs, id)
		}
	}
	if run != nil {
		s.addLost(*run)
	}
	return nil
}

// resolveDuplicateIDs finds the newest of the documents with the same id, which alone is copied.
// twice are the ordinals whose ids may be equal.
func (s *salvage) resolveDuplicateIDs(ctx context.Context, sameHash *roaring.Bitmap) error {
	if sameHash.IsEmpty() {
		return nil
	}
	s.newestOrdinal = map[string]uint32{}
	return s.visitChunks(ctx, func(table *storage.DocTable, _ *kernels.Chunk) error {
		for d, id := range table.IDs {
			ordinal := table.First + uint32(d)
			if !sameHash.Contains(ordinal) {
				continue
			}
			if old, ok := s.newestOrdinal[id]; ok {
				s.docs--
				s.addLost(LostDocuments{
					First: old,
					Last:  old,
					Docs:  1,
					IDs:   []string{id},
					Why:   fmt.Sprintf("document %d has the same id and is newer", ordinal),
				})
			}
			s.newestOrdinal[id] = ordinal
		}
		return nil
	})
}

// resolveNewestDocuments fills newestFirst, if the readable documents may include deleted ones: then
// several documents, or their passages, may have the same id, and only the newest is copied.
func (s *salvage) resolveNewestDocuments(ctx context.Context) error {
	firstByID, lastDocument, previousPassage, first := map[string]uint32{}, "", "", uint32(0)
	err := s.visitChunks(ctx, func(table *storage.DocTable, _ *kernels.Chunk) error {
		for d, id := range table.IDs {
			ordinal := table.First + uint32(d)
			if newest, duplicated := s.newestOrdinal[id]; !s.isWanted(ordinal, id) || duplicated && newest != ordinal {
				continue
			}
			payload, err := s.reader.Payload(ordinal) // copyDocument reports a lost payload
			parent := s.parentID(ordinal, id, payload, err, previousPassage)
			if parent == "" || parent != lastDocument || !continuesPassages(previousPassage, id) {
				lastDocument, first = cmp.Or(parent, id), ordinal
			}
			if previousPassage = ""; parent != "" {
				previousPassage = id
			}
			firstByID[lastDocument], firstByID[id] = first, first
		}
		return nil
	})
	s.newestFirst = firstByID
	return err
}

// visitChunks calls visit with the chunks that have readable documents.
func (s *salvage) visitChunks(ctx context.Context, visit func(*storage.DocTable, *kernels.Chunk) error) error {
	for i := range s.reader.Chunks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ch, err := s.reader.Chunk(i)
		if err != nil { // it was readable before
			return fmt.Errorf("%s: %w", s.reader.Path(), err)
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

// copyAll copies all wanted documents, and the notes of the index, into a new file.
func (s *salvage) copyAll(ctx context.Context, dst *storage.File) error {
	gen, err := putEmptyGeneration(dst, s.reader.Header(), s.reader.Codec(), s.reader.Cutoffs())
	if err != nil {
		return err
	}
	stager := newStager(dst, gen, s.reader.Header().Centroids, storage.State{}, s.Memory)
	err = s.visitChunks(ctx, func(table *storage.DocTable, ch *kernels.Chunk) error {
		for d := range table.IDs {
			if err := s.copyDocument(ctx, stager, table, ch, d); err != nil {
				return err
			}
		}
		s.reportDocs("salvage", table.First+uint32(len(table.IDs)))
		return nil
	})
	if err != nil {
		return err
	}
	return stager.commit(ctx, func(tx *storage.Tx, _ *storage.Generation, st *storage.State) error {
		st.Live, st.LiveTokens = st.Docs, st.Tokens
		if damagedState, ok := s.reader.State(); ok { // stored tokens do not show whether they were clamped
			st.Clamped = min(damagedState.Clamped, st.Tokens)
			st.AddedTokens, st.AddedSumSq = damagedState.AddedTokens, damagedState.AddedSumSq
		}
		s.report.Docs, s.report.Passages = stager.countDocuments(st)
		s.report.Tokens = st.Tokens
		var built Built
		if s.reader.Note(noteBuilt, &built) {
			if err := tx.PutNote(noteBuilt, built); err != nil {
				return err
			}
		}
		if d := s.reader.Defaults(); d != nil {
			if err := tx.PutDefaults(gen, d); err != nil {
				return err
			}
		}
		return tx.MakeCurrent(gen)
	})
}

// copyDocument stages document d of a chunk unless it is lost, deleted, or replaced by a newer one.
func (s *salvage) copyDocument(
	ctx context.Context, stager *stager, table *storage.DocTable, ch *kernels.Chunk, d int,
) error {
	ordinal, id := table.First+uint32(d), table.IDs[d]
	if !s.isWanted(ordinal, id) {
		return nil
	}
	if newest, duplicated := s.newestOrdinal[id]; duplicated && newest != ordinal {
		return nil
	}
	// Skip a document with a bad id, or for which there is a newer one.
	if err := vectors.CheckID(id); err != nil {
		s.addLost(LostDocuments{First: ordinal, Last: ordinal, Docs: 1, IDs: []string{id}, Why: err.Error()})
		return nil
	}
	payload, err := s.reader.Payload(ordinal)
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	parent := s.parentID(ordinal, id, payload, err, s.lastPassage)
	if s.newestFirst[id] > ordinal || s.newestFirst[parent] > ordinal { // false for nil
		s.docs--
		s.addLost(LostDocuments{
			First: ordinal,
			Last:  ordinal,
			Docs:  1,
			IDs:   []string{id},
			Why:   "a newer document has its id, or that of its document",
		})
		return nil
	}
	// Report payloads that are lost, and documents that may have been deleted.
	switch {
	case err != nil:
		s.report.LostPayloads = append(s.report.LostPayloads, id)
	case payload == nil && !s.reader.PayloadsKnown() && (s.report.StateLost || s.report.UnknownPayloads > 0):
		s.report.UncertainPayloads = append(s.report.UncertainPayloads, id)
	}
	if s.reader.Liveness(ordinal) == wreck.Uncertain {
		s.report.Uncertain = append(s.report.Uncertain, id)
	}
	if s.lastPassage = ""; parent != "" {
		s.lastPassage = id
	}
	if parent != "" && payload == nil { // a passage needs a payload that names its document
		p := vectors.Passage{ParentID: parent}
		_, p.Number = vectors.SplitPassageID(id)
		if payload, err = p.Payload(nil); err != nil {
			return err
		}
	}
	// Copy the document.
	return stager.appendDocument(ctx, encoded{
		id:      id,
		parent:  parent,
		payload: payload,
		tokens:  chunkTokens(ch, d, s.reader.Codec()),
	})
}

// parentID returns the id of the document that an ordinal is a passage of. "" means that it is not
// a passage. If the bitmap of passages is lost, the payload decides. If that is lost too, the id
// decides: an ordinal is a passage if it continues the passages of previous, the id of the passage
// before it (or "").
func (s *salvage) parentID(ordinal uint32, id string, payload []byte, payloadErr error, previous string) string {
	parent, n := vectors.SplitPassageID(id)
	if passages := s.reader.Passages(); passages != nil {
		if n >= 0 && passages.Contains(ordinal) {
			return parent
		}
		return ""
	}
	if p, err := vectors.PassageFromPayload(id, payload); err == nil && p != nil {
		return p.ParentID
	}
	if (payloadErr != nil || payload == nil && !s.reader.PayloadsKnown()) && continuesPassages(previous, id) {
		return parent
	}
	return ""
}

// continuesPassages reports whether id is that of a later passage of the document of the passage
// previous.
func continuesPassages(previous, id string) bool {
	previousParent, previousNumber := vectors.SplitPassageID(previous)
	parent, _ := vectors.SplitPassageID(id)
	return previousNumber >= 0 && previousParent == parent && checkPassageOrder(previous, id) == nil
}
