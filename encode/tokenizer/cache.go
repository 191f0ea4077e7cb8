package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	cacheSlots = 1 << 15
	cacheWord  = 30 // bytes of the longest word that is remembered
	cacheIDs   = 9  // most ids of such a word
)

// cache remembers the ids of words. A word has one place, where the last one
// to come there stays; so the cache is bounded, and all goroutines share it
// without locks. It takes 2.5 MiB when full.
type cache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[entry]
}

// entry is a remembered word, in one allocation.
type entry struct {
	ids  [cacheIDs]int32
	n, m uint8 // ids, bytes
	word [cacheWord]byte
}

func newCache() *cache { return &cache{seed: maphash.MakeSeed()} }

func (c *cache) slot(word []byte) *atomic.Pointer[entry] {
	return &c.slots[maphash.Bytes(c.seed, word)%cacheSlots]
}

// get appends the word's ids, if they are remembered.
func (s *entry) get(dst []int32, word []byte) ([]int32, bool) {
	if s == nil || string(s.word[:s.m]) != string(word) {
		return dst, false
	}
	return append(dst, s.ids[:s.n]...), true
}

// newEntry is nil for ids that are too many.
func newEntry(word []byte, ids []int32) *entry {
	if len(ids) > cacheIDs {
		return nil
	}
	e := &entry{n: uint8(len(ids)), m: uint8(len(word))}
	copy(e.word[:], word)
	copy(e.ids[:], ids)
	return e
}
