package dense

import "errors"

// ErrWorkspace: the workspace of a call is too small, or not aligned.
var ErrWorkspace = errors.New("the workspace does not fit")

// inPlaceLimits bound the workspace of a call on the caller's memory.
var inPlaceLimits = limits{docs: stageBytes, projected: stageBytes, part: 32 << 20, segment: 512}

// Score puts the work of a call into its stream.
func (d *Device) Score(c *ScoreCall) error { return nil }

// ScoreWorkspace is how many bytes of workspace the call needs.
func (d *Device) ScoreWorkspace(c *ScoreCall) (int64, error) { return 0, nil }
