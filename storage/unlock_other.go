//go:build !unix

package storage

import "os"

func unlock(*os.File) {}
