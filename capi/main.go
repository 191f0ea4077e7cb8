// Package main is libplaid_maxsim, the C library that plaid_maxsim.h describes:
//
//	go build -buildmode=c-shared -o libplaid_maxsim.so .
//
// A call goes through three steps: exports.c makes the checks that need no Go, check.go and
// batch.go make all others, and processor.go or device.go executes the call.
//
// Without cgo the package has only this file.
package main

func main() {}
