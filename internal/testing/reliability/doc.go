// Package reliability only holds tests: they check an index
// after the process that changes it was killed, after its system calls
// failed, after the power failed, and after it was interrupted.
//
//	go test ./internal/testing/reliability                                             some sixty points
//	go test ./internal/testing/reliability -run Series -full -seed 1 -timeout 60m -v   all of them
//	go test ./internal/testing/reliability -run Series/kill/add -full                  one series, one command
//
// The programs under test are the command plaid, and a process that
// makes fourteen changes to one open index. Package faults intercepts each of their
// system calls that change files, so that a point is the number of a call and a
// fault:
//
//	kill      the process is killed before the call, after it, or after a part of it is written
//	fail      the call fails, or the call and all later ones
//	power     changes that were not synced before the call are lost in part, in any order
//	signal    SIGINT or SIGTERM arrives at the call
//
// After each point the index must open, verify, and hold all acknowledged changes and at
// most the change that was running. After it was opened for writing, it must keep no leftovers
// of a failed change, and accept further changes.
package reliability
