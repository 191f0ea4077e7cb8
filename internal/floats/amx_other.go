//go:build !(linux && amd64)

package floats

// AMXAllowed reports false: only Linux on amd64 grants the permission.
func AMXAllowed() bool { return false }
