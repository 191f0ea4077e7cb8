package kernels

import (
	"sort"
	"sync"
)

// shareDocs is how many ordinals in a row belong to one device. A document stays
// where it is when others come, and what comes is spread evenly.
const shareDocs = 256

// share is a corpus of which a device has some of the documents. The others have
// no tokens there, as if they had been deleted, so that ordinals are the same
// everywhere.
type share struct {
	Corpus
	*shareOf
}

// shareOf is what a share knows of a snapshot.
type shareOf struct {
	whole  *uint64 // of the live set of the snapshot, which tells it from others
	chunks []shareChunk
	live   []uint64
	count  int
}

// shareChunk is documents lo to hi of a chunk, all of which are there, or none.
type shareChunk struct {
	chunk, lo, hi int
	first         uint32
	offsets       []uint32
	own           bool
}

// shares makes shares of snapshots, and keeps the last.
type shares struct {
	number, of int
	mu         sync.Mutex
	last       *shareOf
}

func (s *shares) shareFor(c Corpus) share {
	live, _ := c.LiveSet()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || len(live) == 0 || s.last.whole != &live[0] {
		s.last = s.cut(c, live)
	}
	return share{c, s.last}
}

func (s *shares) owns(ordinal uint32) bool { return int(ordinal/shareDocs)%s.of == s.number }

func (s *shares) cut(c Corpus, live []uint64) *shareOf {
	out := &shareOf{live: s.mask(live)}
	if len(live) > 0 {
		out.whole = &live[0]
	}
	for _, w := range out.live {
		for ; w != 0; w &= w - 1 {
			out.count++
		}
	}
	for i := range c.Chunks() {
		first, offsets := c.ChunkDocs(i)
		n := len(offsets) - 1
		for lo := 0; lo < n; {
			at := first + uint32(lo)
			hi := min(lo+int(shareDocs-at%shareDocs), n)
			own := make([]uint32, hi-lo+1)
			x := shareChunk{chunk: i, lo: lo, hi: hi, first: at, offsets: own, own: s.owns(at)}
			for d := range own {
				if x.own {
					own[d] = offsets[lo+d] - offsets[lo]
				}
			}
			out.chunks = append(out.chunks, x)
			lo = hi
		}
	}
	return out
}

// mask leaves the bits of the share's documents in a copy of a set.
func (s *shares) mask(set []uint64) []uint64 {
	out := make([]uint64, len(set))
	for i, w := range set { // shareDocs is a multiple of 64
		if s.owns(uint32(64 * i)) {
			out[i] = w
		}
	}
	return out
}

// docs leaves the share's documents of an ascending list. It is not nil.
func (s *shares) docs(list []uint32) []uint32 {
	out := []uint32{}
	for len(list) > 0 {
		block := list[0] / shareDocs
		n := sort.Search(len(list), func(i int) bool { return list[i]/shareDocs > block })
		if s.owns(list[0]) {
			out = append(out, list[:n]...)
		}
		list = list[n:]
	}
	return out
}

func (s share) Chunks() int              { return len(s.chunks) }
func (s share) LiveSet() ([]uint64, int) { return s.live, s.count }

func (s share) ChunkDocs(i int) (uint32, []uint32) {
	return s.chunks[i].first, s.chunks[i].offsets
}

func (s share) Load(i int) (*Chunk, error) {
	x := &s.chunks[i]
	if !x.own {
		width := 2
		if s.Codec().Centroids.K > 1<<16 {
			width = 4
		}
		return &Chunk{Offsets: x.offsets, CodeBytes: width}, nil
	}
	ch, err := s.Corpus.Load(x.chunk)
	if err != nil {
		return nil, err
	}
	lo, hi, row := int(ch.Offsets[x.lo]), int(ch.Offsets[x.hi]), s.Codec().RowBytes()
	return &Chunk{
		Offsets: x.offsets, CodeBytes: ch.CodeBytes, Codes: ch.Codes[lo*ch.CodeBytes : hi*ch.CodeBytes],
		Residuals: ch.Residuals[lo*row : hi*row], Factors: ch.Factors[2*lo : 2*hi],
	}, nil
}
