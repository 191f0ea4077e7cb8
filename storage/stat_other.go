//go:build !unix && !windows

package storage

import "os"

func linkCount(string, os.FileInfo) int { return 1 }

func fileOwner(os.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

func fileIdentity(*os.File, os.FileInfo) (device, inode uint64) { return 0, 0 }

// locksAreOurs: bbolt has one of its own, which is not given back while a file is open.
const locksAreOurs = false
