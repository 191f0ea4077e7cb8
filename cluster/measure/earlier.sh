#!/usr/bin/env bash
# Builds what counts changes and idle costs (-writers, -idle) of an earlier commit, to be run in
# turn with that of today: measure/earlier.sh 2f5d52d ./earlier && ./earlier -writers 64
set -euo pipefail
commit=$1 program=$(realpath -m "$2") here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
git -C "$here/../.." archive "$commit" | tar -x -C "$dir"
cd "$dir/cluster"
rm -r measure && mkdir measure
cp "$here/growth.go" measure/
cat >measure/main.go <<'GO'
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	writers := flag.Int("writers", 0, "")
	tokens := flag.Int("tokens", 32, "")
	shards := flag.Int("idle", 0, "")
	lasting := flag.Duration("lasting", 20*time.Second, "")
	flag.Parse()
	err := fmt.Errorf("neither -writers nor -idle is given")
	if *writers > 0 {
		err = writes(context.Background(), *writers, *tokens, *lasting)
	} else if *shards > 0 {
		err = idle(context.Background(), *shards, 2, 2, *lasting)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }
GO
if ! grep -q 'func (s \*Server) Messages' bus/*.go; then
  cat >bus/messages.go <<'GO'
package bus

// Traffic counts messages of clients.
type Traffic struct{ In, Out int64 }

// Messages counts what has come to the server and gone from it.
func (s *Server) Messages() (Traffic, error) {
	v, err := s.s.Varz(nil)
	if err != nil {
		return Traffic{}, err
	}
	return Traffic{v.InMsgs, v.OutMsgs}, nil
}
GO
fi
go build -o "$program" ./measure
