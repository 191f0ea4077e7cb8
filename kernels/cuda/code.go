package cuda

import (
	"io/fs"
	"strings"
)

// Code lists the modules that are embedded: their family and the compute capability.
func (k kind) Code() []string {
	files, _ := fs.Glob(k.modules, "module/*.gz") // the pattern is valid
	names := []string{}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f, "module/"), ".gz"))
	}
	return names
}
