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

// CombineDevices returns one device that distributes work over several. Each of them stores the
// whole index, and the queries of a call are divided evenly among them. Memory in
// [AttachOptions] is that of each device. Builds run on the first. Close closes all.
func CombineDevices(devices ...Device) Device { return &several{devices: devices} }

// MemberDevices returns the devices that [CombineDevices] combined, or d itself if it is not such
// a device.
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
	join := func(field func(*DeviceInfo) string) string { // joins the different values of a field
		var values []string
		for i := range infos {
			if v := field(&infos[i]); !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		return strings.Join(values, ",")
	}
	sum := DeviceInfo{
		Name:       join(func(i *DeviceInfo) string { return i.Name }),
		Model:      join(func(i *DeviceInfo) string { return i.Model }),
		Capability: join(func(i *DeviceInfo) string { return i.Capability }),
		PCI:        join(func(i *DeviceInfo) string { return i.PCI }),
		Driver:     join(func(i *DeviceInfo) string { return i.Driver }),
		Unusable:   join(func(i *DeviceInfo) string { return i.Unusable }),
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
	var err error
	for _, d := range s.devices {
		err = errors.Join(err, d.Close())
	}
	return err
}

// runOnEach calls fn for every number below n, in a goroutine each, and joins the errors.
func runOnEach(n int, fn func(i int) error) error {
	failed := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { failed[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// Attach uploads an index to all devices at once, and reports the sum of their progress.
func (s *several) Attach(ctx context.Context, c Corpus, o AttachOptions) (Attachment, error) {
	a := &attachments{name: s.Info().Name, members: make([]Attachment, len(s.devices))}
	progress := o.Progress
	var mu sync.Mutex
	done, total := make([]int64, len(a.members)), make([]int64, len(a.members)) // by device
	err := runOnEach(len(a.members), func(i int) (err error) {
		o := o
		if progress != nil {
			o.Progress = func(deviceDone, deviceTotal int64) {
				mu.Lock()
				defer mu.Unlock()
				done[i], total[i] = deviceDone, deviceTotal
				var sumDone, sumTotal int64
				for j := range done {
					sumDone += done[j]
					sumTotal += total[j]
				}
				progress(sumDone, sumTotal)
			}
		}
		a.members[i], err = s.devices[i].Attach(ctx, c, o)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// attachments is an index on several devices.
type attachments struct {
	name    string
	members []Attachment // by device. nil where Attach failed
	next    atomic.Int64 // number of the device that gets the next run of queries
}

// Plan adds up the plans of all devices.
func (a *attachments) Plan() (sum MemoryPlan) {
	sum.Resident = true
	for _, m := range a.members {
		plan := m.Plan()
		sum.Tokens += plan.Tokens
		sum.Slots += plan.Slots
		sum.Codec += plan.Codec
		sum.Words += plan.Words
		sum.Residuals += plan.Residuals
		sum.Tables += plan.Tables
		sum.Staging += plan.Staging
		sum.Query += plan.Query
		sum.Limit += plan.Limit
		sum.Resident = sum.Resident && plan.Resident
		sum.Pieces = max(sum.Pieces, plan.Pieces)
	}
	return sum
}

// Close closes the attachments of all devices.
func (a *attachments) Close() error {
	var err error
	for _, m := range a.members {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}
	return err
}

// Search implements [Attachment]. It gives each device a run of consecutive queries; the
// first device changes from call to call, so that small calls use all devices.
func (a *attachments) Search(ctx context.Context, c Corpus, qs []DeviceQuery) ([]DeviceAnswer, error) {
	if len(qs) == 0 {
		return []DeviceAnswer{}, nil
	}
	start := time.Now()
	answers := make([]DeviceAnswer, len(qs))
	n := min(len(a.members), len(qs))
	first := int(a.next.Add(int64(n)) - int64(n))
	err := runOnEach(n, func(i int) error {
		lo, hi := len(qs)*i/n, len(qs)*(i+1)/n
		found, err := a.members[(first+i)%len(a.members)].Search(ctx, c, qs[lo:hi])
		copy(answers[lo:hi], found)
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

// openSeveral opens the devices of a list of names. A name such as "cuda:all" stands for all
// devices of its kind. source is that of openNamed.
func openSeveral(ctx context.Context, list, source string) (Device, error) {
	// Expand names that stand for all devices of a kind.
	var names []string
	for _, name := range strings.Split(list, ",") {
		if kind, ok := strings.CutSuffix(name, ":all"); ok {
			found, err := namesOfKind(kind, source)
			if err != nil {
				return nil, err
			}
			names = append(names, found...)
			continue
		}
		names = append(names, name)
	}
	// Open them; the first error closes those that are open.
	s := &several{}
	for i, name := range names {
		var d Device
		err := error(nil)
		if name == "cpu" || name == AutoDevice {
			err = fmt.Errorf("%w: device %q%s: %s cannot be one of several devices", ErrUnavailable, list, source, name)
		} else if slices.Contains(names[:i], name) {
			err = fmt.Errorf("%w: device %q%s is named twice", ErrUnavailable, name, source)
		} else {
			d, err = openNamed(ctx, name, source)
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

// namesOfKind lists the names of all devices of a kind. source is that of openNamed.
func namesOfKind(kind, source string) (names []string, err error) {
	for _, k := range deviceKinds() {
		if k.Kind() != kind {
			continue
		}
		found, err := k.Devices()
		if err != nil {
			return nil, fmt.Errorf("%w: devices of kind %s%s: %w", ErrUnavailable, kind, source, err)
		}
		for _, info := range found {
			names = append(names, info.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no devices of kind %q%s", ErrUnavailable, kind, source)
	}
	return names, nil
}
