//go:build !nocuda

package command

import _ "github.com/plaid-ir/plaid/kernels/cuda" // GPUs
