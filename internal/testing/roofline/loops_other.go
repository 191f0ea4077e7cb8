//go:build !amd64 || purego

package roofline

func supported() bool { return false }

func widestFMA() int { return 0 }

func byteDots(int) {}

func fmas512(int) {}

func fmas256(int) {}

func load([]byte) {}
