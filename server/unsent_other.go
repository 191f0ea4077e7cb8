//go:build !linux

package server

import "net"

// limitUnsent does nothing: only Linux has the option.
func limitUnsent(net.Conn) {}
