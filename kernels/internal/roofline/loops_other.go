//go:build !amd64 || purego

package roofline

func supported() bool { return false }

func dots(int) {}

func load([]byte) {}
