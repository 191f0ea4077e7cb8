package server

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/vectors"
)

const answerTensorsDoc = "A safetensors file with the tensors lengths (I64: how many vectors each text or " +
	"document has), vectors (F32, [tokens, dim]: all of them, one after another) and answer (U8: the JSON without " +
	"the vectors)."

// acceptsTensors reports whether the client accepts a safetensors file as an answer with vectors.
func (q *request) acceptsTensors() bool {
	for _, line := range q.Header.Values("Accept") {
		for item := range strings.SplitSeq(line, ",") {
			media, params, err := mime.ParseMediaType(item)
			if err != nil || media != mediaTensors {
				continue
			}
			weight, err := strconv.ParseFloat(params["q"], 64)
			return err != nil || weight > 0
		}
	}
	return false
}

// sendTensors answers with the vectors of texts or documents, and with the other fields of the answer as
// JSON. The memory of the vectors must be reserved already.
func (q *request) sendTensors(answer any, matrices []Matrix, dim int) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	if err := q.memory.reserve(q.ctx, int64(len(text)+8*len(matrices))); err != nil {
		return err
	}
	lengths, tokens := make([]byte, 0, 8*len(matrices)), 0
	for _, m := range matrices {
		lengths = binary.LittleEndian.AppendUint64(lengths, uint64(m.Tokens))
		tokens += m.Tokens
	}
	head, err := vectors.SafetensorsHeader(
		vectors.Tensor{Name: tensorLengths, Dtype: "I64", Shape: []int{len(matrices)}},
		vectors.Tensor{Name: tensorVectors, Dtype: "F32", Shape: []int{tokens, dim}},
		vectors.Tensor{Name: tensorAnswer, Dtype: "U8", Shape: []int{len(text)}},
	)
	if err != nil {
		return err
	}
	q.releaseSlot()
	h := q.w.Header()
	h.Set("Content-Type", mediaTensors)
	h.Set("Content-Length", strconv.Itoa(len(head)+len(lengths)+4*tokens*dim+len(text)))
	h.Set("Server-Timing", q.serverTiming())
	q.w.WriteHeader(http.StatusOK)
	write := func(b []byte) { _, err = q.w.Write(b) }
	write(append(head, lengths...))
	for i := 0; i < len(matrices) && err == nil; i++ { // a client that has left needs no answer
		write(vectors.LittleEndianBytes(matrices[i].Data))
	}
	if err == nil {
		write(text)
	}
	return nil
}

// encodeMatrices returns the vectors of all texts, and their number. An answer of tensors cannot be sent
// while texts are encoded, because its header has the number of all vectors.
func (q *request) encodeMatrices(
	role encode.Role, place placeName, texts []string, factor *int,
) ([]Matrix, int, error) {
	const matrixBytes = 64 // of a Matrix, rounded up
	var matrices []Matrix
	tokens := 0
	err := q.encodeEach(role, place, texts, factor, func(m Matrix, _ []encode.Token) error {
		if err := q.reserveAnswer(4*len(m.Data) + matrixBytes); err != nil {
			return err
		}
		m.Data = append([]float32(nil), m.Data...)
		matrices, tokens = append(matrices, m), tokens+m.Tokens
		return nil
	})
	return matrices, tokens, err
}
