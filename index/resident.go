package index

import (
	"context"
	"log/slog"
	"math"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// residentTokens is the largest number of tokens in a batch of resident vectors.
const residentTokens = 1 << 18

// residentBatchLimit returns the number of tokens in a batch of resident vectors. Such batches hold
// only encoded tokens, and share a fourth of the memory.
func residentBatchLimit(c *codec.Quantizer, memory int64) int {
	tokenBytes := int64(c.CodeBytes() + c.RowBytes() + 2) // code, residuals, factor
	return int(min(max(memory/4/batchesInFlight/tokenBytes, 256), residentTokens))
}

// residentSource returns src if its vectors lie on a device, otherwise nil.
func residentSource(src vectors.Source) vectors.Resident {
	if r, ok := src.(vectors.Resident); ok && r.Vectors() != nil {
		return r
	}
	return nil
}

// residentOnBackend returns src if its vectors lie where the backend computes, otherwise nil. Token
// numbers have 32 bits, so it also returns nil if there are more vectors.
func residentOnBackend(src vectors.Source, backend kernels.Backend) vectors.Resident {
	b, ok := backend.(kernels.ResidentBuilder)
	r := residentSource(src)
	if ok && r != nil && b.HasVectors(r.Vectors()) && int64(r.Vectors().Len()) <= math.MaxUint32 {
		return r
	}
	return nil
}

// dropResident frees the vectors on the device, because they left no room for a build.
func dropResident(src vectors.Resident, logger *slog.Logger, err error) {
	if src.DropVectors(); logger != nil {
		logger.Warn("vectors do not stay on the device", "error", err)
	}
}

// tokensBefore counts the tokens of the documents before doc.
func tokensBefore(src vectors.Source, doc int) int {
	n := 0
	for i := range doc {
		n += src.Rows(i)
	}
	return n
}

// tokenNumbers returns the numbers of the sampled tokens among all tokens of src, ascending.
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

// trainResident trains on the device that holds the vectors. lastRound is the sample of the last
// round, or nil.
func trainResident(
	ctx context.Context, src vectors.Resident, sampled, lastRound *sample, normalize bool, o codec.TrainOptions,
) (*codec.Quantizer, codec.TrainReport, error) {
	s := &codec.ResidentSample{Vectors: src.Vectors(), Numbers: sampled.tokenNumbers(src), Unit: normalize}
	if lastRound != nil {
		s.All = lastRound.tokenNumbers(src)
	}
	return codec.TrainResident(ctx, s, o)
}
