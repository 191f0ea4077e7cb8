//go:build !(linux && amd64)

package floats

// AMXAllowed reports false: nobody can be asked here.
func AMXAllowed() bool { return false }
