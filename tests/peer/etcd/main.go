// Command etcd is the store that the original API server needs, built from its published Go module:
// Debian 12's is older than what kube-apiserver can use.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
