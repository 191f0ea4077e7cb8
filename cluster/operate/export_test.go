package operate

import "time"

// SetRest says for how long a promotion waits for replicas that are not needed for it.
func (o *Operator) SetRest(d time.Duration) { o.rest = d }
