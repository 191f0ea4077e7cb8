package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
)

// fingerprint returns a hash of these parts, each after its length: the kind of model; the other
// parts of the file as compact JSON with sorted keys, except the post-processor, which is hashed
// as its ids; the model's settings as compact JSON; its pieces by id; and its scores or merges.
func fingerprint(t *Tokenizer, parts map[string]value) (sum [32]byte, err error) {
	h := sha256.New()
	write := func(b []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	write([]byte("plaid tokenizer 1"))
	write([]byte(t.kind))
	for _, key := range []string{"normalizer", "pre_tokenizer", "added_tokens"} {
		b, err := canonicalJSON(parts[key].raw)
		if err != nil {
			return sum, parts[key].errorf("%w", err)
		}
		write(b)
	}
	for _, ids := range [][]int32{t.prefix, t.suffix} {
		write(binary.LittleEndian.AppendUint32(nil, uint32(len(ids))))
		for _, id := range ids {
			write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
		}
	}
	b, err := canonicalJSON(t.settings)
	if err != nil {
		return sum, parts["model"].errorf("%w", err)
	}
	write(b)
	write(binary.LittleEndian.AppendUint64(nil, uint64(t.vocab.size)))
	for _, p := range t.vocab.pieces {
		write([]byte(p))
	}
	switch m := t.model.(type) {
	case *unigram:
		for _, s := range m.scores {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(s)))
		}
	case *bpe:
		h.Write(m.mergesHash[:])
	}
	h.Sum(sum[:0])
	return sum, nil
}

// canonicalJSON returns JSON without white space and with sorted keys. Empty JSON becomes null.
func canonicalJSON(raw json.RawMessage) ([]byte, error) {
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
