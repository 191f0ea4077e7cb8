package kernels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Several makes one device of several. Each holds the whole of an index, and the queries
// of a call are dealt out to them evenly. Memory in [AttachOptions] is that of each.
// Builds use the first. Closing it closes them.
func Several(devices ...Device) Device { return &several{devices: devices} }

// MemberDevices are the devices that one of several is made of; of others it is the device.
func MemberDevices(d Device) []Device {
	if s, ok := d.(*several); ok {
		return s.devices
	}
	return []Device{d}
}

// several is devices that are used as one.
type several struct{ devices []Device }

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

// runOnEach calls fn for every number below n, at once, and joins the errors.
func runOnEach(n int, fn func(i int) error) error {
	failed := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { failed[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// Attach uploads an index to all devices at once.
func (s *several) Attach(ctx context.Context, c Corpus, o AttachOptions) (Attachment, error) {
	a := &attachments{name: s.Info().Name, parts: make([]Attachment, len(s.devices))}
	progress := o.Progress
	var mu sync.Mutex
	done, total := make([]int64, len(a.parts)), make([]int64, len(a.parts))
	err := runOnEach(len(a.parts), func(i int) (err error) {
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
		a.parts[i], err = s.devices[i].Attach(ctx, c, o)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// attachments is an index on several devices.
type attachments struct {
	name  string
	parts []Attachment // nil: not attached
	next  atomic.Int64 // the device whose turn it is
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

// Search implements [Attachment]: it deals queries out, a run of them to each device.
func (a *attachments) Search(ctx context.Context, c Corpus, qs []DeviceQuery) ([]DeviceAnswer, error) {
	if len(qs) == 0 {
		return []DeviceAnswer{}, nil
	}
	start := time.Now()
	answers := make([]DeviceAnswer, len(qs))
	n := min(len(a.parts), len(qs))
	first := int(a.next.Add(int64(n)) - int64(n))
	err := runOnEach(n, func(i int) error {
		lo, hi := len(qs)*i/n, len(qs)*(i+1)/n
		part, err := a.parts[(first+i)%len(a.parts)].Search(ctx, c, qs[lo:hi])
		copy(answers[lo:hi], part)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range answers {
		answers[i].Stats.Device = a.name
		answers[i].Stats.Times.Total = time.Since(start) / time.Duration(len(qs))
	}
	return answers, nil
}

// openSeveral opens the devices of a list of names, or all of a kind.
func openSeveral(ctx context.Context, list, from string) (Device, error) {
	var names []string
	for _, name := range strings.Split(list, ",") {
		if kind, ok := strings.CutSuffix(name, ":all"); ok {
			all, err := namesOfKind(kind, from)
			if err != nil {
				return nil, err
			}
			names = append(names, all...)
			continue
		}
		names = append(names, name)
	}
	s := &several{}
	for i, name := range names {
		var d Device
		err := error(nil)
		if name == "cpu" || name == AutoDevice {
			err = fmt.Errorf("%w: device %q%s: the processor is not one of several devices", ErrUnavailable, list, from)
		} else if slices.Contains(names[:i], name) {
			err = fmt.Errorf("%w: device %q%s is named twice", ErrUnavailable, name, from)
		} else {
			d, err = openNamed(ctx, name, from)
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

// namesOfKind names the devices of a kind.
func namesOfKind(kind, from string) (names []string, err error) {
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
