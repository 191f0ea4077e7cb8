package replica

import (
	"os"
	"strings"
	"sync"
)

// bootID tells one start of the machine from another; "" if that is not known.
var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
