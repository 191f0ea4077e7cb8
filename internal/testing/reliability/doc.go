// Package reliability holds tests and nothing else: what becomes of an index
// when the process that changes it is killed, when the system calls that it
// makes fail, when the power goes, and when it is interrupted.
//
//	go test ./internal/testing/reliability                                             some sixty points
//	go test ./internal/testing/reliability -run Series -full -seed 1 -timeout 60m -v   all of them
//	go test ./internal/testing/reliability -run Series/kill/add -full                  one series, one command
//
// The programs under test are the command plaid as it is, and a process that
// makes fourteen changes on one open index. Package faults stops each of their
// system calls that change files, so that a point is the number of a call and
// what becomes of it:
//
//	kill      the process is killed before the call, after it, or when a part of it is written
//	fail      the call fails, or it and all that follow
//	power     what was not synced until the call is lost in part, in any order
//	signal    SIGINT or SIGTERM arrives at the call
//
// After each the index must open, verify, hold what was acknowledged and at
// most the change that was under way, keep nothing of what came to nothing once
// it has been opened for writing, and take further changes.
package reliability
