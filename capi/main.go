// Package main is libplaid_maxsim, the C library that plaid_maxsim.h describes:
//
//	go build -buildmode=c-shared -o libplaid_maxsim.so .
//
// A call goes through three places: exports.c looks at what needs no Go, check.go and
// batch.go at all else, and processor.go or device.go has the work done.
//
// Without cgo there is only this file.
package main

func main() {}
