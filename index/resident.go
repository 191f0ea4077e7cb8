package index

import (
	"context"
	"log/slog"
	"math"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// residentTokens is how many tokens a batch of resident vectors has at most.
const residentTokens = 1 << 18

// residentBatchLimit is batchTokens of resident vectors: the batches under way hold encoded tokens alone,
// and share a fourth of the memory.
func residentBatchLimit(c *codec.Quantizer, memory int64) int {
	return int(min(max(memory/4/batchesInFlight/int64(c.CodeBytes()+c.RowBytes()+2), 256), residentTokens))
}

// residentSource is src if its vectors lie on a device, else nil.
func residentSource(src vectors.Source) vectors.Resident {
	if r, ok := src.(vectors.Resident); ok && r.Vectors() != nil {
		return r
	}
	return nil
}

// residentOnBackend is src if its vectors lie where a backend computes, else nil.
func residentOnBackend(src vectors.Source, be kernels.Backend) vectors.Resident {
	b, ok := be.(kernels.ResidentBuilder)
	if r := residentSource(src); ok && r != nil && b.Holds(r.Vectors()) && int64(r.Vectors().Len()) <= math.MaxUint32 {
		return r
	}
	return nil
}

// dropResident frees vectors that have left no room for a build.
func dropResident(src vectors.Resident, logger *slog.Logger, err error) {
	if src.DropVectors(); logger != nil {
		logger.Warn("vectors do not stay on the device", "error", err)
	}
}

// tokensBefore counts the tokens of the documents before one.
func tokensBefore(src vectors.Source, doc int) int {
	n := 0
	for i := range doc {
		n += src.Rows(i)
	}
	return n
}

// tokenNumbers are those of the tokens of a sample, of all tokens.
func (s *sample) tokenNumbers(src vectors.Source) []uint32 {
	numbers := make([]uint32, 0, s.tokens)
	doc, first := 0, 0
	for _, span := range s.spans {
		for ; doc < span.doc; doc++ {
			first += src.Rows(doc)
		}
		for row := first + span.lo; row < first+span.hi; row++ {
			numbers = append(numbers, uint32(row))
		}
	}
	return numbers
}

// trainResident trains on vectors where they lie. all is the sample of the last round, or nil.
func trainResident(
	ctx context.Context, src vectors.Resident, picked, lastRound *sample, unit bool, o codec.TrainOptions,
) (*codec.Quantizer, codec.TrainReport, error) {
	s := &codec.ResidentSample{Vectors: src.Vectors(), Numbers: picked.tokenNumbers(src), Unit: unit}
	if lastRound != nil {
		s.All = lastRound.tokenNumbers(src)
	}
	return codec.TrainResident(ctx, s, o)
}
