package dense

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// sourceForm is how device code is compiled for the processor, and run.
type sourceForm struct {
	small    bool // lists in shared memory end soon
	reversed bool // threads of a block run from the last to the first
}

// compiledSources is plaid_host_launch of src/host, built once for all tests; 0 without a compiler.
var compiledSources = [2]func() (uintptr, error){
	sync.OnceValues(func() (uintptr, error) { return compileSources() }),
	sync.OnceValues(func() (uintptr, error) { return compileSources("-DPLAID_SMALL") }),
}

func compileSources(options ...string) (launch uintptr, err error) {
	compiler, err := exec.LookPath(cmp.Or(os.Getenv("CXX"), "g++"))
	if err != nil {
		return 0, nil //nolint:nilerr // the tests skip
	}
	dir, err := os.MkdirTemp("", "plaid-sources")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	lib := filepath.Join(dir, "dense.so")
	// Fortified longjmp refuses to change fibers; Ubuntu's compiler fortifies by default.
	options = append(options, "-U_FORTIFY_SOURCE")
	options = append(options, "-std=c++17", "-O2", "-fno-strict-aliasing", "-fno-extern-tls-init", "-D__CUDACC__", "-w",
		"-shared", "-fPIC", "-I", ".", "-o", lib, "dense.cc")
	cmd := exec.Command(compiler, options...)
	cmd.Dir = filepath.Join("..", "..", "src", "host")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	h, err := purego.Dlopen(lib, purego.RTLD_NOW)
	if err != nil {
		return 0, err
	}
	return purego.Dlsym(h, "plaid_host_launch")
}

// sources is a fake driver whose kernels are the device code, compiled for the processor.
func sources(t testing.TB, form sourceForm) *drivertest.Fake {
	number := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	launch, err := compiledSources[number(form.small)]()
	require.NoError(t, err)
	if launch == 0 {
		t.Skip("there is no C++ compiler")
	}
	kernels := fakeKernels()
	for name := range kernels {
		if strings.HasPrefix(name, "dense_chamfer_wide") { // of sm_90a
			continue
		}
		terminated := append([]byte(name), 0)
		kernels[name] = func(f *drivertest.Fake, l *driver.Launch) {
			grid := [3]uint32{l.Grid.X, l.Grid.Y, l.Grid.Z}
			message := make([]byte, 256)
			r, _, _ := purego.SyscallN(launch, uintptr(unsafe.Pointer(&terminated[0])), uintptr(unsafe.Pointer(&grid)),
				uintptr(l.Block.X), uintptr(l.Shared), uintptr(l.Args), uintptr(number(form.reversed)),
				uintptr(unsafe.Pointer(&message[0])), uintptr(len(message)))
			if int32(r) != 0 {
				text, _, _ := bytes.Cut(message, []byte{0})
				panic(string(text))
			}
		}
	}
	f := runtimetest.Fake(kernels)
	f.Mapped = true
	return f
}

// TestSources runs the device code of the kernels that are for all devices against the oracle: in
// the long form all of them, in all forms.
func TestSources(t *testing.T) {
	dims, share, random, forms := []int{8, 33}, 14, 60, []sourceForm{{small: true}}
	if effort.Long() {
		dims, share, random = []int{3, 8, 33, 132}, 4, 500
		forms = append(forms, sourceForm{}, sourceForm{small: true, reversed: true})
	}
	for _, form := range forms {
		run := func(name string, test func(t *testing.T)) { t.Run(fmt.Sprintf("%s,%+v", name, form), test) }
		card := func(t *testing.T, bytes int64) *card { return cardOf(t, sources(t, form), bytes) }
		inPlace := func(t *testing.T) *inPlace {
			return inPlaceOf(t, sources(t, form), runtimetest.Modules(), sources(t, form))
		}
		run("gradients", func(t *testing.T) { testGradients(t, card(t, 1<<24), dims, 40, 20, share) })
		run("random gradients", func(t *testing.T) { randomGradients(t, card(t, 1<<24), random) })
		run("heads", func(t *testing.T) { checkHeads(t, inPlace(t)) })
		run("captured", func(t *testing.T) { checkCapture(t, inPlace(t)) })
		run("masks of points", func(t *testing.T) { checkMasks(t, inPlace(t)) })
		if !effort.Long() {
			continue
		}
		if !form.small { // which takes minutes
			run("many gradients", func(t *testing.T) { manyGradients(t, card(t, 1<<26), []int{40, 132}) })
		}
		run("lists of pairs", func(t *testing.T) { testPairLists(t, card(t, 1<<25)) })
		run("wrong arguments", func(t *testing.T) { checkWrong(t, inPlace(t)) })
		run("brought", func(t *testing.T) {
			maxsimtest.Run(t, New(runtimetest.OpenFake(t, sources(t, form))), maxsimtest.Options{MaxDim: 17, Brief: true})
		})
		run("in place", func(t *testing.T) { maxsimtest.Run(t, inPlace(t), maxsimtest.Options{MaxDim: 17}) })
	}
}
