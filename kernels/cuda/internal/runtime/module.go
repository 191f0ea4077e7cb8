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

// Device code is built and compressed by src/build.sh. MODULE_XY.cubin.gz is
// machine code for devices of compute capability X.Y and newer of the same X, and
// MODULE_XYa.cubin.gz for X.Y only. The driver compiles MODULE_XY.ptx.gz for X.Y and
// all newer devices.

// EnvCode is an environment variable. If it is "ptx", machine code is ignored and the
// driver compiles the PTX, as it does for devices that are newer than this build. This takes
// up to a minute the first time; drivers cache the compiled code.
const EnvCode = "PLAID_CUDA_CODE"

// minCapability is the lowest compute capability that the kernels are for.
const minCapability = 80

// imageFor returns the name of the file with a module's device code for a compute capability:
// machine code if there is some, else PTX.
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

// readImage reads and decompresses device code.
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

// archFromName returns the architecture in the name of an image: "90a" of plaid_90a.cubin.gz.
func archFromName(name string) string {
	_, suffix, _ := strings.Cut(name, "_")
	arch, _, _ := strings.Cut(suffix, ".")
	return arch
}

// rankImage returns how well an image fits a module and a compute capability; the highest rank is
// the best, −1 means that the image cannot be used.
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
		return 10000 // above 1000 + n for all n
	case kind == "cubin.gz" && !archSpecific && n/10 == capability/10:
		return 1000 + n
	case kind == "ptx.gz" && !archSpecific:
		return n
	}
	return -1
}
