package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/search"
)

// Status says what became of a query.
type Status uint8

// The statuses.
const (
	OK Status = iota
	// Busy: the queue of the node is full. Another replica may have time.
	Busy
	// WrongGeneration: the node does not serve this generation of this shard.
	WrongGeneration
	// Behind: a shard has not applied what was asked for.
	Behind
	// Late: the time was over before the answer was there, or the query was cancelled.
	Late
	// Refused: the query itself is at fault, whoever is asked; Code says how.
	Refused
	// Failed: the node is at fault. Another replica may answer.
	Failed
	statuses
)

var statusNames = [statuses]string{"ok", "busy", "wrong generation", "behind", "late", "refused", "failed"}

func (s Status) String() string {
	if s < statuses {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Code says why a query was refused.
type Code uint16

// The codes; each stands for an error of package search or storage. Fields that a
// node does not have are no error there, but [Answer.Unknown].
const (
	CodeNone Code = iota
	CodeQuery
	CodeOption
	CodeUnknownID
	CodeModel
	CodeValues // of a facet: too many
	codes
)

// Answer is what a node found.
type Answer struct {
	ID     ID     // of the query
	Status Status // what became of it
	Code   Code   // of a refusal
	Text   string // of an error
	// Unknown are the fields of the query's condition that no document of the shards has. It
	// is for whoever asks to decide whether that is an error: other shards may have them.
	Unknown    []string
	Generation uint64 // that was searched
	// Queued and Worked is how long the query waited and took; Waiting how many wait now.
	Queued, Worked time.Duration
	Waiting        int
	// Shards that were searched.
	Shards []ShardState
	// Hits in order: by score, then by shard, then by ordinal. More says that the list was
	// cut at Query.Keep, Bare that payloads were asked for and left out, as they do not fit.
	Hits []Hit
	More bool
	Bare bool
	// Stats of the search.
	Stats search.Stats
}

// ShardState is a shard as it was searched.
type ShardState struct {
	Shard     int
	Applied   uint64 // sequence of the log
	Documents uint64 // live
}

// Hit is a hit and its shard.
type Hit struct {
	Shard int // that has the document
	search.Hit
}

const answerMagic = "PLR1"

// Flags of an answer.
const (
	flagMore = 1 << iota
	flagPayloads
	flagCut     // the text of the error was cut
	flagUnknown // the text is that of Unknown
	flagBare
	flagDetails
	allAnswerFlags = 1<<iota - 1
)

// detail is what a hit has beside, where a query has [Wants]. Payloads are those of the passages,
// which need not be JSON.
type detail struct {
	Passages []search.Hit   `json:"passages,omitempty"`
	Payloads [][]byte       `json:"payloads,omitempty"`
	Matches  []search.Match `json:"matches,omitempty"`
	Tokens   int            `json:"tokens,omitempty"`
}

// details are those of hits, or none.
func details(hits []Hit) ([]byte, error) {
	all, some := make([]detail, len(hits)), false
	for i := range hits {
		h := &hits[i]
		d := detail{slices.Clone(h.Passages), nil, h.Matches, h.Tokens}
		for j := range d.Passages {
			d.Payloads = append(d.Payloads, d.Passages[j].Payload)
			d.Passages[j].Payload = nil
		}
		all[i] = d
		some = some || h.Passages != nil || h.Matches != nil
	}
	if !some {
		return nil, nil
	}
	return json.Marshal(all)
}

// takeDetails gives hits what they have beside.
func takeDetails(hits []Hit, text []byte) error {
	var all []detail
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	if len(all) != len(hits) {
		return fmt.Errorf("details of %d hits, there are %d", len(all), len(hits))
	}
	for i, d := range all {
		if len(d.Payloads) != len(d.Passages) {
			return fmt.Errorf("%d payloads of %d passages", len(d.Payloads), len(d.Passages))
		}
		for j := range d.Passages {
			if d.Passages[j].Payload = d.Payloads[j]; len(d.Passages[j].Passages) > 0 {
				return errors.New("passages of passages")
			}
		}
		hits[i].Passages, hits[i].Matches, hits[i].Tokens = d.Passages, d.Matches, d.Tokens
	}
	return nil
}

const maxText = 4096

// noPayload is the length of a payload that is not there.
const noPayload = math.MaxUint32

var planNames = []string{
	search.PlanProbe.String(), search.PlanScan.String(), search.PlanExact.String(), search.PlanDevice.String(), search.PlanDeviceProbe.String(),
}

func statFields(s *search.Stats) []*int64 {
	t := &s.Times
	return []*int64{
		&s.Allowed, &s.FilterMissing, &s.Probed, &s.Postings, &s.Candidates, &s.Widened, &s.ApproxDocs, &s.ApproxTokens, &s.ExactDocs,
		&s.ExactTokens, &s.RefinedDocs, (*int64)(&t.Wait), (*int64)(&t.Centroids), (*int64)(&t.Probe), (*int64)(&t.Approx), (*int64)(&t.Exact),
		(*int64)(&t.Refine), (*int64)(&t.Total),
	}
}

// Encode returns the message. A payload or id beyond what fits is an error.
func (a *Answer) Encode() ([]byte, error) {
	size, flags := 0, uint16(0)
	for _, h := range a.Hits {
		size += 18 + len(h.ID) + len(h.Payload)
		if h.Payload != nil {
			flags |= flagPayloads
		}
		if len(h.ID) > math.MaxUint16 || h.Shard < 0 || h.Shard > MaxShards || int64(len(h.Payload)) >= noPayload {
			return nil, fmt.Errorf("answer: %w: hit %q of shard %d does not fit", ErrMessage, h.ID, h.Shard)
		}
	}
	if a.More {
		flags |= flagMore
	}
	if a.Bare {
		flags |= flagBare
	}
	text := a.Text
	if len(a.Unknown) > 0 {
		list, err := json.Marshal(a.Unknown)
		if err != nil || text != "" || len(list) > math.MaxUint16 {
			return nil, fmt.Errorf("answer: %w: %d fields are unknown", ErrMessage, len(a.Unknown))
		}
		text, flags = string(list), flags|flagUnknown
	}
	if flags&flagUnknown == 0 && len(text) > maxText {
		text, flags = text[:maxText], flags|flagCut
	}
	beside, err := details(a.Hits)
	if err != nil {
		return nil, err
	}
	if beside != nil {
		flags |= flagDetails
	}
	w := begin(answerMagic, 256+len(beside)+len(text)+18*len(a.Shards)+size)
	w.u8(version)
	w.u8(uint8(a.Status))
	w.u16(flags)
	w.bytes(a.ID[:])
	w.u64(a.Generation)
	w.u16(uint16(a.Code))
	w.u16(uint16(len(text)))
	w.u32(micros(a.Queued))
	w.u32(micros(a.Worked))
	w.u32(uint32(a.Waiting))
	w.u16(uint16(len(a.Shards)))
	w.u32(uint32(len(a.Hits)))
	w.u32(uint32(a.Stats.Queries))
	w.u32(uint32(a.Stats.QueryTokens))
	for _, name := range planNames {
		w.u32(uint32(a.Stats.Plans[name]))
	}
	for _, f := range statFields(&a.Stats) {
		w.u64(uint64(*f))
	}
	for _, s := range a.Shards {
		w.u16(uint16(s.Shard))
		w.u64(s.Applied)
		w.u64(s.Documents)
	}
	for _, h := range a.Hits {
		w.f32(h.Score)
		w.u32(h.Ordinal)
		w.u16(uint16(h.Shard))
		w.u16(uint16(len(h.ID)))
		if flags&flagPayloads != 0 {
			w.u32(payloadLength(h.Payload))
		}
	}
	for _, h := range a.Hits {
		w.text(h.ID)
	}
	for _, h := range a.Hits {
		w.bytes(h.Payload)
	}
	w.text(text)
	if beside != nil {
		w.u32(uint32(len(beside)))
		w.bytes(beside)
	}
	return w.sealed(), nil
}

func payloadLength(p []byte) uint32 {
	if p == nil {
		return noPayload
	}
	return uint32(len(p))
}

func micros(d time.Duration) uint32 { return uint32(min(max(d.Microseconds(), 0), math.MaxUint32)) }

// DecodeAnswer reads what Encode writes.
func DecodeAnswer(msg []byte) (*Answer, error) {
	r := open("answer", answerMagic, msg)
	a := &Answer{}
	a.Status = Status(r.u8())
	flags := r.u16()
	a.ID = r.id()
	a.Generation = r.u64()
	a.Code = Code(r.u16())
	text := r.u16()
	a.Queued = time.Duration(r.u32()) * time.Microsecond
	a.Worked = time.Duration(r.u32()) * time.Microsecond
	a.Waiting = int(r.u32())
	shards, hits := r.u16(), r.u32()
	a.Stats.Queries, a.Stats.QueryTokens = int(r.u32()), int(r.u32())
	for _, name := range planNames {
		if n := r.u32(); n > 0 {
			if a.Stats.Plans == nil {
				a.Stats.Plans = map[string]int{}
			}
			a.Stats.Plans[name] = int(n)
		}
	}
	for _, f := range statFields(&a.Stats) {
		*f = int64(r.u64())
	}
	switch {
	case r.err != nil:
	case a.Status >= statuses || a.Code >= codes:
		r.fail("unknown %v, code %d", a.Status, a.Code)
	case flags&^allAnswerFlags != 0:
		r.fail("unknown flags %x", flags&^allAnswerFlags)
	}
	a.More, a.Bare = flags&flagMore != 0, flags&flagBare != 0
	a.Shards = make([]ShardState, r.count(uint64(shards), 18))
	for i := range a.Shards {
		a.Shards[i] = ShardState{int(r.u16()), r.u64(), r.u64()}
	}
	head := uint64(12)
	if flags&flagPayloads != 0 {
		head = 16
	}
	a.Hits = make([]Hit, r.count(uint64(hits), head))
	ids, payloads := make([]uint16, len(a.Hits)), make([]uint32, len(a.Hits))
	for i := range a.Hits {
		h := &a.Hits[i]
		h.Score, h.Ordinal, h.Shard, ids[i], payloads[i] = r.f32(), r.u32(), int(r.u16()), r.u16(), noPayload
		if flags&flagPayloads != 0 {
			payloads[i] = r.u32()
		}
	}
	for i := range a.Hits {
		a.Hits[i].ID = string(r.take(uint64(ids[i])))
	}
	for i := range a.Hits {
		if payloads[i] != noPayload {
			a.Hits[i].Payload = append(search.Payload{}, r.take(uint64(payloads[i]))...)
		}
	}
	switch b := r.take(uint64(text)); {
	case flags&flagUnknown == 0:
		a.Text = string(b)
	case r.err == nil:
		err := json.Unmarshal(b, &a.Unknown)
		if again, _ := json.Marshal(a.Unknown); err != nil || len(a.Unknown) == 0 || !bytes.Equal(again, b) || flags&flagCut != 0 {
			r.fail("no list of fields")
		}
	}
	if flags&flagDetails != 0 {
		text := r.take(uint64(r.u32()))
		if r.err == nil {
			if err := takeDetails(a.Hits, text); err != nil {
				r.fail("%v", err)
			}
		}
	}
	if flags&flagCut != 0 {
		a.Text += " …"
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return a, nil
}
