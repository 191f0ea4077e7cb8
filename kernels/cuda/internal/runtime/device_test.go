package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

var ctx = context.Background()

// request is of a family of kernels; those of one kind share launches.
type request struct {
	runtime.Ticket
	kind, size, room int
	run              func(rt *runtime.Runtime, batch []runtime.Request) error
	batch            []*request // that answered it
}

func (r *request) Joins(other runtime.Request) bool {
	o, ok := other.(*request)
	return ok && o.kind == r.kind
}
func (r *request) BatchShare() int { return r.size }
func (r *request) BatchLimit() int { return r.room }

func (r *request) Run(rt *runtime.Runtime, batch []runtime.Request) error {
	var all []*request
	for _, b := range batch {
		all = append(all, b.(*request))
	}
	for _, b := range all {
		b.batch = all
	}
	if r.run == nil {
		return nil
	}
	return r.run(rt, batch)
}

// busy keeps a device's goroutine until the function that it returns is called.
func busy(t *testing.T, d *runtime.Device) (goOn func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		done <- d.Call(ctx, func(*runtime.Runtime) error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun
	return func() {
		close(end)
		require.NoError(t, <-done)
	}
}

// The oldest request takes along what joins it and fits, wherever it waits, and
// nobody's place in the queue changes by that.
func TestRequestsShareABatch(t *testing.T) {
	d := runtimetest.OpenFake(t, runtimetest.Fake(nil))
	var order []int
	var all []*request
	note := func(_ *runtime.Runtime, batch []runtime.Request) error {
		order = append(order, len(batch))
		return nil
	}
	for _, r := range []struct{ kind, size int }{{1, 2}, {2, 1}, {1, 5}, {1, 3}, {2, 1}, {1, 4}, {1, 3}} {
		all = append(all, &request{kind: r.kind, size: r.size, room: 9, run: note})
	}
	require.NoError(t, runtime.RunRequests(ctx, d, all))
	// 2+5 leave no room for a 3 and a 4.
	require.Equal(t, []*request{all[0], all[2]}, all[0].batch)
	require.Equal(t, []*request{all[1], all[4]}, all[1].batch)
	require.Equal(t, []*request{all[3], all[5]}, all[3].batch)
	require.Equal(t, []*request{all[6]}, all[6].batch)
	require.Equal(t, []int{2, 2, 2, 1}, order, "the oldest first")

	require.NoError(t, runtime.RunRequests(ctx, d, []*request{{kind: 1, size: 100, room: 1}}), "one that fits nowhere runs alone")
	require.NoError(t, runtime.RunRequests(ctx, d, []*request(nil)))
}

// The error of a batch is that of all of it, but of requests that have their own.
func TestErrorsOfABatch(t *testing.T) {
	d := runtimetest.OpenFake(t, runtimetest.Fake(nil))
	own, common := errors.New("own"), errors.New("common")
	a := &request{kind: 1, size: 1, room: 5}
	b := &request{kind: 1, size: 1, room: 5}
	a.run = func(*runtime.Runtime, []runtime.Request) error {
		b.Fail(own)
		return common
	}
	goOn := busy(t, d)
	errs := make([]chan error, 2)
	for i, r := range []*request{a, b} {
		errs[i] = make(chan error, 1)
		go func() { errs[i] <- runtime.RunRequests(ctx, d, []*request{r}) }()
		waitQueued(t, d, i+1)
	}
	goOn()
	require.ErrorIs(t, <-errs[0], common)
	require.ErrorIs(t, <-errs[1], own)
	require.NoError(t, d.Call(ctx, func(*runtime.Runtime) error { return nil }), "the device goes on")
}

func waitQueued(t *testing.T, d *runtime.Device, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); runtime.Waiting(d) != n; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d wait", runtime.Waiting(d))
	}
}

// A request whose context ends while it waits is never begun; one that has begun
// is waited for.
func TestContextsEndWaiting(t *testing.T) {
	d := runtimetest.OpenFake(t, runtimetest.Fake(nil))
	goOn := busy(t, d)
	waiting, cancel := context.WithCancel(ctx)
	var begun atomic.Bool
	done := make(chan error)
	go func() {
		done <- d.Call(waiting, func(*runtime.Runtime) error { begun.Store(true); return nil })
	}()
	waitQueued(t, d, 1)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Zero(t, runtime.Waiting(d))
	goOn()
	require.ErrorIs(t, d.Call(waiting, func(*runtime.Runtime) error { begun.Store(true); return nil }), context.Canceled)
	require.False(t, begun.Load())

	running, cancel := context.WithCancel(ctx)
	finished := false
	require.NoError(t, d.Call(running, func(*runtime.Runtime) error {
		cancel()
		time.Sleep(10 * time.Millisecond)
		finished = true
		return nil
	}))
	require.True(t, finished)
}

// Closing answers what waits.
func TestCloseAnswersWhatWaits(t *testing.T) {
	f := runtimetest.Fake(nil)
	d, err := runtimetest.Open(f.API(), runtimetest.Modules())
	require.NoError(t, err)
	goOn := busy(t, d)
	errs := make(chan error)
	for range 5 {
		go func() { errs <- d.Call(ctx, func(*runtime.Runtime) error { return nil }) }()
	}
	waitQueued(t, d, 5)
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	for !runtime.Closed(d) {
		time.Sleep(time.Millisecond)
	}
	goOn()
	for range 5 {
		require.ErrorIs(t, <-errs, kernels.ErrDeviceClosed)
	}
	require.NoError(t, <-closed)
	require.ErrorIs(t, d.Call(ctx, func(*runtime.Runtime) error { return nil }), kernels.ErrDeviceClosed)
	runtimetest.RequireNothingOut(t, f, d)
}

// A lost device is lost for all that come later, also where the loss is the error
// of one request of a batch.
func TestLossIsKept(t *testing.T) {
	d := runtimetest.OpenFake(t, runtimetest.Fake(nil))
	gone := &driver.Error{Op: "cuThing", Code: driver.LaunchFailed}
	a := &request{kind: 1, size: 1, room: 5}
	a.run = func(*runtime.Runtime, []runtime.Request) error {
		a.Fail(gone)
		return nil
	}
	require.ErrorIs(t, runtime.RunRequests(ctx, d, []*request{a}), driver.ErrDeviceLost)
	require.ErrorIs(t, d.Call(ctx, func(*runtime.Runtime) error { return nil }), driver.ErrDeviceLost)
}

// Requests that wait beside the one that panics, or are in its batch, are
// answered with the error, too.
func TestPanicAnswersAllThatWait(t *testing.T) {
	d := runtimetest.OpenFake(t, runtimetest.Fake(nil))
	goOn := busy(t, d)
	errs := make(chan error)
	for i := range 20 {
		r := &request{kind: i % 2, size: 1, room: 100, run: func(*runtime.Runtime, []runtime.Request) error { panic("broken") }}
		go func() { errs <- runtime.RunRequests(ctx, d, []*request{r}) }()
	}
	waitQueued(t, d, 20)
	goOn()
	for range 20 {
		var fault *kernels.PanicError
		err := <-errs
		require.ErrorAs(t, err, &fault)
		require.Equal(t, "broken", fault.Value)
		require.Contains(t, string(fault.Stack), "TestPanicAnswersAllThatWait")
	}
}

// owner holds memory of a device.
type owner struct {
	rt  *runtime.Runtime
	mem driver.Mem
}

func (o *owner) Free() {
	_ = o.rt.Driver.Free(o.mem)
	o.mem = driver.Mem{}
	o.rt.RemoveOwner(o)
}

// Shared memory goes with the last owner, and owners with the device.
func TestMemoryGoesWithItsOwners(t *testing.T) {
	f := runtimetest.Fake(nil)
	d := runtimetest.OpenFake(t, f)
	var a, b *owner
	own := func(o **owner) {
		require.NoError(t, d.Call(ctx, func(rt *runtime.Runtime) (err error) {
			*o = &owner{rt: rt}
			rt.AddOwner(*o)
			(*o).mem, err = rt.Driver.Alloc(100)
			return err
		}))
	}
	own(&a)
	own(&b)
	require.NoError(t, d.Call(ctx, func(rt *runtime.Runtime) error {
		assert.NoError(t, rt.Work.Reserve(runtime.WorkspaceSizes{
			In:      1000,
			Out:     1000,
			Scratch: 1000,
			Zeroed:  100,
		}))
		assert.GreaterOrEqual(t, len(rt.Work.HostIn), 1000)
		assert.Equal(t, make([]byte, 100), f.Bytes(rt.Work.Zeroed.Ptr, 100))
		in := rt.Work.In
		assert.NoError(t, rt.Work.Reserve(runtime.WorkspaceSizes{
			In:      500,
			Out:     1,
			Scratch: 1,
			Zeroed:  1,
		}))
		assert.Equal(t, in, rt.Work.In, "large enough")
		return rt.ReserveStaging(50)
	}))
	free := func(o *owner) {
		require.NoError(t, d.Call(ctx, func(*runtime.Runtime) error { o.Free(); return nil }))
	}
	free(a)
	require.Equal(t, 4+2+1, d.Live().Allocations, "workspace, staging and one owner")
	free(b)
	require.Zero(t, d.Live().Allocations)
	require.Zero(t, d.Live().HostAllocations)
	own(&a)
	require.Positive(t, d.Live().Allocations)
}

// Pieces cross in two turns, each found by what comes after it.
func TestStaging(t *testing.T) {
	f := runtimetest.Fake(nil)
	d := runtimetest.OpenFake(t, f)
	require.NoError(t, d.Call(ctx, func(rt *runtime.Runtime) error { // assert: this is not the test's goroutine
		assert.NoError(t, rt.ReserveStaging(100))
		before := driver.Ptr(0)
		for i := range byte(5) {
			st, err := rt.Stage(int64(10+i), func(host []byte) error {
				assert.Len(t, host, 10+int(i))
				for j := range host {
					host[j] = i
				}
				return nil
			})
			assert.NoError(t, err)
			assert.Equal(t, bytes.Repeat([]byte{i}, 10+int(i)), f.Bytes(st.Raw, int64(10+i)))
			assert.NoError(t, rt.Unstage(st))
			assert.NotEqual(t, before, st.Raw, "what was staged before may be in use")
			before = st.Raw
		}
		unreadable := errors.New("unreadable")
		_, err := rt.Stage(3, func([]byte) error { return unreadable })
		assert.ErrorIs(t, err, unreadable)
		return nil
	}))
	d.Close()
	runtimetest.RequireNothingOut(t, f, d)
}

// Kernels are looked up once, with their shared memory, and launched with what
// they are given.
func TestLaunches(t *testing.T) {
	type addParams struct {
		out  driver.Ptr
		x, y uint32
	}
	launches, lookups := 0, 0
	f := runtimetest.Fake(map[string]drivertest.Kernel{"add": func(f *drivertest.Fake, l *driver.Launch) {
		p := (*addParams)(l.Args)
		drivertest.Slice[uint32](f, p.out, 1)[0] += p.x*l.Grid.X + p.y
		launches++
	}})
	f.Fail = func(op string) driver.Result {
		if op == "cuModuleGetFunction" {
			lookups++
		}
		return driver.Success
	}
	d := runtimetest.OpenFake(t, f)
	require.NoError(t, d.Call(ctx, func(rt *runtime.Runtime) error {
		assert.Equal(t, "80", rt.Arch())
		m, err := rt.Driver.Alloc(4)
		assert.NoError(t, err)
		defer rt.Driver.Free(m)
		assert.NoError(t, rt.Driver.Set(m.Ptr, 0, 4, rt.Stream))
		for range 3 {
			assert.NoError(t, rt.RecordPoint(0))
			assert.NoError(t, runtime.Launch(rt, "add", 2, 1, 1, 32, 0, &addParams{m.Ptr, 10, 1}))
			assert.NoError(t, runtime.Launch(rt, "add", 0, 1, 1, 32, 0, &addParams{m.Ptr, 10, 1}), "nothing to do")
			assert.NoError(t, rt.RecordPoint(1))
		}
		assert.NoError(t, rt.SyncPoint(1))
		elapsed, err := rt.Elapsed(0, 1)
		assert.NoError(t, err)
		assert.Equal(t, 250*time.Microsecond, elapsed)
		sum := make([]uint32, 1)
		assert.NoError(t, rt.Driver.ToHost(runtime.Bytes(sum), m.Ptr, rt.Stream))
		assert.NoError(t, rt.Sync())
		assert.EqualValues(t, 63, sum[0])
		assert.Equal(t, 3, launches)
		assert.Equal(t, 1, lookups)
		n, err := rt.FillingBlocks("add", 32, 0)
		assert.NoError(t, err)
		assert.Equal(t, 4, n, "two blocks on each of two multiprocessors")
		assert.NoError(t, runtime.Launch(rt, "add", 1, 1, 1, 32, 1000, &addParams{m.Ptr, 0, 0}))
		assert.Equal(t, 2, lookups, "more shared memory")
		assert.ErrorIs(t, runtime.Launch(rt, "add", 1, 1, 1, 32, 1<<20, &addParams{m.Ptr, 0, 0}), driver.ErrUnsupported)
		assert.ErrorContains(t, runtime.Launch(rt, "subtract", 1, 1, 1, 32, 0, &addParams{m.Ptr, 0, 0}), "subtract")
		return nil
	}))
}

// A panic while a device is opened is an error as well.
func TestPanicAtOpening(t *testing.T) {
	f := runtimetest.Fake(nil)
	_, err := runtimetest.Open(f.API(), brokenFiles{runtimetest.Modules()})
	var fault *kernels.PanicError
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, err, "broken files")
	require.Contains(t, string(fault.Stack), "brokenFiles")
	runtimetest.RequireNothingOut(t, f, nil)
}

// brokenFiles are there, and cannot be read.
type brokenFiles struct{ fstest.MapFS }

func (b brokenFiles) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, ".gz") {
		panic("broken files")
	}
	return b.MapFS.Open(name)
}

// Whatever fails while a device is opened, nothing is left.
func TestOpeningFailsCleanly(t *testing.T) {
	for n := 1; ; n++ {
		f := runtimetest.Fake(nil)
		calls := 0
		f.Fail = func(string) driver.Result {
			if calls++; calls == n {
				return driver.OutOfMemory
			}
			return driver.Success
		}
		d, err := runtimetest.Open(f.API(), runtimetest.Modules())
		if err == nil {
			require.NoError(t, d.Close())
			require.Greater(t, n, 10)
			break
		}
		require.ErrorIs(t, err, driver.ErrOutOfMemory, "call %d", n)
		runtimetest.RequireNothingOut(t, f, nil)
	}
}

// The device code is machine code for the device where there is some, and else
// the newest PTX that is not newer.
func TestDeviceCodeFitsTheDevice(t *testing.T) {
	code := runtimetest.Modules()["plaid_80.cubin.gz"]
	modules := fstest.MapFS{}
	for _, name := range []string{"80.ptx", "80.cubin", "86.cubin", "90a.cubin", "100.cubin"} {
		modules["plaid_"+name+".gz"] = code
	}
	for _, c := range []struct {
		major, minor int
		want         string
	}{{8, 0, "80"}, {8, 6, "86"}, {8, 9, "86"}, {9, 0, "90a"}, {9, 1, "80"}, {10, 3, "100"}, {12, 0, "80"}} {
		f := runtimetest.Fake(nil)
		f.Devices[0].Major, f.Devices[0].Minor = c.major, c.minor
		d, err := runtimetest.Open(f.API(), modules)
		require.NoError(t, err)
		got := ""
		require.NoError(t, d.Call(ctx, func(rt *runtime.Runtime) error { got = rt.Arch(); return nil }))
		require.Equal(t, c.want, got, "%d.%d", c.major, c.minor)
		require.NoError(t, d.Close())
	}

	// PTX alone, if asked for.
	f := runtimetest.Fake(nil)
	t.Setenv(runtime.EnvCode, "ptx")
	d, err := runtimetest.Open(f.API(), modules)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	delete(modules, "plaid_80.ptx.gz")
	_, err = runtimetest.Open(f.API(), modules)
	require.ErrorIs(t, err, driver.ErrUnsupported)
	t.Setenv(runtime.EnvCode, "sass")
	_, err = runtimetest.Open(f.API(), modules)
	require.ErrorContains(t, err, runtime.EnvCode)
}

// Where there are processors for it, askers and the device stay awake for a while,
// which changes no answer.
func TestAwake(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(4))
	d := runtimetest.OpenFake(t, runtimetest.Fake(nil))
	for i := range 200 {
		answered := false
		require.NoError(t, d.Call(ctx, func(*runtime.Runtime) error { answered = true; return nil }))
		require.True(t, answered)
		if i%50 == 0 {
			canceled, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, d.Call(canceled, func(*runtime.Runtime) error { return nil }), context.Canceled)
		}
	}
	var wg sync.WaitGroup
	var n atomic.Int64
	for range 16 {
		wg.Go(func() {
			for range 20 {
				assert.NoError(t, d.Call(ctx, func(*runtime.Runtime) error { n.Add(1); return nil }))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 320, n.Load())
}
