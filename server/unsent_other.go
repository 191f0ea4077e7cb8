//go:build !linux

package server

import "net"

func boundUnsent(net.Conn) {}
