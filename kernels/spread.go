package kernels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Spread makes one device of several, each of which holds a share of the
// documents. Every search asks all of them and merges what they find, which is
// what one device with all documents would find; a search with probes that finds
// too few documents on one device has that device search all of its share. Memory
// in [AttachOptions] is that of each. Builds use the first. Closing it closes them.
func Spread(devices ...Device) Device { return &several{devices: devices} }

// Parts are the devices that one of several is made of; of others it is the device.
func Parts(d Device) []Device {
	if s, ok := d.(*several); ok {
		return s.devices
	}
	return []Device{d}
}

// several is devices that are used as one. Copies each hold the whole of an index:
// searches are dealt out to them, the queries of a call evenly.
type several struct {
	devices []Device
	copies  bool
}

// copiesPrefix begins the names of devices that each hold the whole.
const copiesPrefix = "copies:"

func (s *several) Info() DeviceInfo {
	infos := make([]DeviceInfo, len(s.devices))
	for i, d := range s.devices {
		infos[i] = d.Info()
	}
	join := func(of func(*DeviceInfo) string) string {
		var parts []string
		for i := range infos {
			if p := of(&infos[i]); !slices.Contains(parts, p) {
				parts = append(parts, p)
			}
		}
		return strings.Join(parts, ",")
	}
	sum := DeviceInfo{
		Name: join(func(i *DeviceInfo) string { return i.Name }), Model: join(func(i *DeviceInfo) string { return i.Model }),
		Capability: join(func(i *DeviceInfo) string { return i.Capability }), PCI: join(func(i *DeviceInfo) string { return i.PCI }),
		Driver: join(func(i *DeviceInfo) string { return i.Driver }), Unusable: join(func(i *DeviceInfo) string { return i.Unusable }),
	}
	if s.copies {
		sum.Name = copiesPrefix + sum.Name
	}
	for _, i := range infos {
		sum.Memory += i.Memory
		sum.Multiprocessors += i.Multiprocessors
	}
	return sum
}

// Builder returns that of the first device.
func (s *several) Builder(cpu Backend) Builder { return s.devices[0].Builder(cpu) }

// Close closes all devices.
func (s *several) Close() error {
	var all error
	for _, d := range s.devices {
		all = errors.Join(all, d.Close())
	}
	return all
}

// onEach calls fn for every number below n, at once, and joins the errors.
func onEach(n int, fn func(i int) error) error {
	failed := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { failed[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// Attach uploads an index to all devices at once, its share or all of it.
func (s *several) Attach(ctx context.Context, c Corpus, o AttachOptions) (Attachment, error) {
	a := &attachments{name: s.Info().Name, parts: make([]Attachment, len(s.devices)), shares: make([]*shares, len(s.devices)), copies: s.copies}
	progress := o.Progress
	var mu sync.Mutex
	done, total := make([]int64, len(a.parts)), make([]int64, len(a.parts))
	err := onEach(len(a.parts), func(i int) (err error) {
		a.shares[i] = &shares{number: i, of: len(a.parts)}
		o := o
		if progress != nil {
			o.Progress = func(n, of int64) {
				mu.Lock()
				defer mu.Unlock()
				done[i], total[i] = n, of
				sum := [2]int64{}
				for j := range done {
					sum[0] += done[j]
					sum[1] += total[j]
				}
				progress(sum[0], sum[1])
			}
		}
		a.parts[i], err = s.devices[i].Attach(ctx, a.corpus(i, c), o)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// attachments is an index on several devices.
type attachments struct {
	name   string
	parts  []Attachment // nil: not attached
	shares []*shares
	copies bool
	next   atomic.Int64 // of copies: the device whose turn it is
}

// corpus is what part i has of a snapshot.
func (a *attachments) corpus(i int, c Corpus) Corpus {
	if a.copies {
		return c
	}
	return a.shares[i].shareFor(c)
}

// Plan adds up the plans.
func (a *attachments) Plan() (sum MemoryPlan) {
	sum.Resident = true
	for _, p := range a.parts {
		x := p.Plan()
		sum.Tokens += x.Tokens
		sum.Slots += x.Slots
		sum.Codec += x.Codec
		sum.Words += x.Words
		sum.Residuals += x.Residuals
		sum.Tables += x.Tables
		sum.Staging += x.Staging
		sum.Query += x.Query
		sum.Limit += x.Limit
		sum.Resident = sum.Resident && x.Resident
		sum.Pieces = max(sum.Pieces, x.Pieces)
	}
	return sum
}

// Close closes all of them.
func (a *attachments) Close() error {
	var all error
	for _, p := range a.parts {
		if p != nil {
			all = errors.Join(all, p.Close())
		}
	}
	return all
}

// Search implements [Attachment].
func (a *attachments) Search(ctx context.Context, c Corpus, qs []DeviceQuery) ([]DeviceAnswer, error) {
	if len(qs) == 0 {
		return []DeviceAnswer{}, nil
	}
	start := time.Now()
	search := a.everywhere
	if a.copies {
		search = a.anywhere
	}
	answers, err := search(ctx, c, qs)
	for i := range answers {
		answers[i].Stats.Device = a.name
		answers[i].Stats.Times.Total = time.Since(start) / time.Duration(len(qs))
	}
	return answers, err
}

// anywhere deals queries out to copies, a run of them to each.
func (a *attachments) anywhere(ctx context.Context, c Corpus, qs []DeviceQuery) ([]DeviceAnswer, error) {
	answers := make([]DeviceAnswer, len(qs))
	n := min(len(a.parts), len(qs))
	first := int(a.next.Add(int64(n)) - int64(n))
	err := onEach(n, func(i int) error {
		lo, hi := len(qs)*i/n, len(qs)*(i+1)/n
		part, err := a.parts[(first+i)%len(a.parts)].Search(ctx, c, qs[lo:hi])
		copy(answers[lo:hi], part)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// everywhere asks all devices, and merges.
func (a *attachments) everywhere(ctx context.Context, c Corpus, qs []DeviceQuery) ([]DeviceAnswer, error) {
	found := make([][]DeviceAnswer, len(a.parts))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := onEach(len(a.parts), func(i int) (err error) {
		// One restriction for several queries stays one, so that they share launches.
		masked, listed := map[*uint64][]uint64{}, map[*uint32][]uint32{}
		mine := slices.Clone(qs)
		for j := range mine {
			q := &mine[j]
			if len(q.Allowed) > 0 {
				key := &q.Allowed[0]
				if masked[key] == nil {
					masked[key] = a.shares[i].mask(q.Allowed)
				}
				q.Allowed = masked[key]
			}
			if len(q.Docs) > 0 {
				key := &q.Docs[0]
				if listed[key] == nil {
					listed[key] = a.shares[i].docs(q.Docs)
				}
				q.Docs = listed[key]
			}
		}
		if found[i], err = a.parts[i].Search(ctx, a.corpus(i, c), mine); err != nil {
			cancel() // the others need not go on
		}
		return err
	})
	if err != nil {
		return nil, firstCause(err)
	}
	answers := make([]DeviceAnswer, len(qs))
	for j := range qs {
		answers[j] = merge(found, j, qs[j].K)
	}
	return answers, nil
}

// firstCause is the first of joined errors that is not the end of a context, which
// one that failed has brought upon the others.
func firstCause(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	for _, e := range joined.Unwrap() {
		if !errors.Is(e, context.Canceled) {
			return e
		}
	}
	return err
}

// merge is the answer to query j of what each device has found.
func merge(found [][]DeviceAnswer, j, k int) (out DeviceAnswer) {
	type hit struct {
		doc   uint32
		score float32
	}
	var hits []hit
	for i := range found {
		x := &found[i][j]
		for n, doc := range x.Docs {
			hits = append(hits, hit{doc, x.Scores[n]})
		}
		out.Stats.Add(x.Stats)
	}
	slices.SortFunc(hits, func(x, y hit) int { return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.doc, y.doc)) })
	hits = hits[:min(k, len(hits))]
	out.Docs, out.Scores = make([]uint32, len(hits)), make([]float32, len(hits))
	for i, h := range hits {
		out.Docs[i], out.Scores[i] = h.doc, h.score
	}
	out.Stats.Searches = 1
	return out
}

// openSeveral opens the devices of a list of names, or all of a kind.
func openSeveral(ctx context.Context, list, from string) (Device, error) {
	rest, copies := strings.CutPrefix(list, copiesPrefix)
	var names []string
	for _, name := range strings.Split(rest, ",") {
		if kind, ok := strings.CutSuffix(name, ":all"); ok {
			all, err := ofKind(kind, from)
			if err != nil {
				return nil, err
			}
			names = append(names, all...)
			continue
		}
		names = append(names, name)
	}
	s := &several{copies: copies}
	for i, name := range names {
		var d Device
		err := error(nil)
		if slices.Contains(names[:i], name) {
			err = fmt.Errorf("%w: device %q%s is named twice", ErrUnavailable, name, from)
		} else {
			d, err = openOne(ctx, name, from)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.devices = append(s.devices, d)
	}
	if len(s.devices) == 1 {
		return s.devices[0], nil
	}
	return s, nil
}

// ofKind names the devices of a kind.
func ofKind(kind, from string) (names []string, err error) {
	for _, k := range deviceKinds() {
		if k.Kind() != kind {
			continue
		}
		found, err := k.Devices()
		if err != nil {
			return nil, fmt.Errorf("%w: devices of kind %s%s: %w", ErrUnavailable, kind, from, err)
		}
		for _, info := range found {
			names = append(names, info.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no devices of kind %q%s", ErrUnavailable, kind, from)
	}
	return names, nil
}
