package replica

import (
	"os"
	"strings"
	"sync"
)

// bootID identifies the present boot of the machine, "" if it is not known.
var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
