package runtime

import (
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// Device code is built by src/build.sh and compressed: MODULE_XY.cubin.gz is
// machine code for devices of compute capability X.Y and newer of the same X
// (with an a behind it: of X.Y alone), MODULE_XY.ptx.gz is compiled by the driver
// for newer ones.

// EnvCode is the environment variable that, set to "ptx", leaves machine code out, so
// that the driver compiles the device code, as it does for devices that are newer
// than this build. That takes up to a minute; drivers keep what they compiled.
const EnvCode = "PLAID_CUDA_CODE"

// minCapability is the lowest compute capability that the kernels are for.
const minCapability = 80

// imageFor picks the device code of a module for a compute capability: machine code
// if there is some, else PTX.
func imageFor(modules fs.FS, module string, major, minor int) (name string, err error) {
	capability := 10*major + minor
	if capability < minCapability {
		return "", fmt.Errorf("%w: compute capability %d.%d; at least %d.%d is needed",
			driver.ErrUnsupported, major, minor, minCapability/10, minCapability%10)
	}
	files, err := fs.ReadDir(modules, ".")
	if err != nil {
		return "", err
	}
	rank, code := -1, os.Getenv(EnvCode)
	if code != "" && code != "ptx" {
		return "", fmt.Errorf("%w: %s is %q; want ptx, or nothing", driver.ErrUnsupported, EnvCode, code)
	}
	for _, f := range files {
		if code != "" && !strings.HasSuffix(f.Name(), ".ptx.gz") {
			continue
		}
		if r := rankImage(f.Name(), module, capability); r > rank {
			name, rank = f.Name(), r
		}
	}
	if name == "" {
		return "", fmt.Errorf("%w: this build has no device code of %s for compute capability %d.%d",
			driver.ErrUnsupported, module, major, minor)
	}
	return name, nil
}

// readImage unpacks device code.
func readImage(modules fs.FS, name string) ([]byte, error) {
	f, err := modules.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return io.ReadAll(z)
}

// archFromName is the architecture in the name of an image.
func archFromName(name string) string {
	_, suffix, _ := strings.Cut(name, "_")
	arch, _, _ := strings.Cut(suffix, ".")
	return arch
}

// rankImage orders images by how well they fit a module and a capability: −1 not at
// all.
func rankImage(name, module string, capability int) int {
	suffix, ok := strings.CutPrefix(name, module+"_")
	if !ok {
		return -1
	}
	arch, kind, _ := strings.Cut(suffix, ".")
	number, archSpecific := strings.CutSuffix(arch, "a")
	n, err := strconv.Atoi(number)
	if err != nil || n > capability {
		return -1
	}
	switch {
	case kind == "cubin.gz" && archSpecific && n == capability:
		return 10000
	case kind == "cubin.gz" && !archSpecific && n/10 == capability/10:
		return 1000 + n
	case kind == "ptx.gz" && !archSpecific:
		return n
	}
	return -1
}
