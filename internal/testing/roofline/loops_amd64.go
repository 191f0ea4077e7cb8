//go:build amd64 && !purego

package roofline

import "golang.org/x/sys/cpu"

// widestFMA returns the number of float32 lanes of the widest multiply-add; without such an
// instruction, 0.
func widestFMA() int {
	switch x := &cpu.X86; {
	case x.HasAVX512F:
		return 16
	case x.HasAVX2 && x.HasFMA:
		return 8
	}
	return 0
}

// supported reports whether byteDots and load can run.
func supported() bool { return cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VNNI }

// byteDots executes 16 independent VPDPBUSD a round.
//
//go:noescape
func byteDots(rounds int)

// load reads x, whose length is a multiple of 512, 64 bytes at a time.
//
//go:noescape
func load(x []byte)

// fmas512 and fmas256 execute 16 and 12 independent VFMADD231PS a round.
//
//go:noescape
func fmas512(rounds int)

//go:noescape
func fmas256(rounds int)
