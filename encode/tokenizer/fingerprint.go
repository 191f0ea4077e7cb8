package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
)

// fingerprint hashes, each part after its length: the kind of model; the parts
// of the file but the model as compact JSON with sorted keys (the post-processor
// as its ids); the model's pieces by id, its scores or merges, its other values
// as compact JSON.
func fingerprint(t *Tokenizer, parts map[string]value) (sum [32]byte, err error) {
	h := sha256.New()
	put := func(b []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	put([]byte("plaid tokenizer 1"))
	put([]byte(t.kind))
	for _, key := range []string{"normalizer", "pre_tokenizer", "added_tokens"} {
		b, err := canonical(parts[key].raw)
		if err != nil {
			return sum, parts[key].faultf("%w", err)
		}
		put(b)
	}
	for _, ids := range [][]int32{t.prefix, t.suffix} {
		put(binary.LittleEndian.AppendUint32(nil, uint32(len(ids))))
		for _, id := range ids {
			put(binary.LittleEndian.AppendUint32(nil, uint32(id)))
		}
	}
	b, err := canonical(t.settings)
	if err != nil {
		return sum, parts["model"].faultf("%w", err)
	}
	put(b)
	put(binary.LittleEndian.AppendUint64(nil, uint64(t.vocab.size)))
	for _, p := range t.vocab.pieces {
		put([]byte(p))
	}
	switch m := t.model.(type) {
	case *unigram:
		for _, s := range m.scores {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(s)))
		}
	case *bpe:
		h.Write(m.sum[:])
	}
	h.Sum(sum[:0])
	return sum, nil
}

// canonical is JSON without white space and with sorted keys; null for nothing.
func canonical(raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 {
		return []byte("null"), nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
