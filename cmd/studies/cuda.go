//go:build !nocuda

package main

import _ "github.com/plaid-ir/plaid/kernels/cuda" // -device of the study of growth
