//go:build amd64 && !purego

package roofline

import "golang.org/x/sys/cpu"

func supported() bool { return cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VNNI }

// dots executes 16 VPDPBUSD a round, of which none waits for another of its round.
//
//go:noescape
func dots(rounds int)

// load reads x, whose length is a multiple of 512, 64 bytes at a time.
//
//go:noescape
func load(x []byte)
