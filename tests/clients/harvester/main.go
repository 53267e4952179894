// Command harvester goes, call by call, the ways that Harvester's own clients go against a cluster, with Harvester's own
// types, clientsets and builder of machines. It is a stand-in for them and proves no more than a stand-in can; README.md
// says for which, and what it leaves out.
//
// Each way is a subcommand: it prints one line per thing that is so, and at the first thing that is not it says which and
// exits with 1. Where the client would take a nil pointer apart, the line says what it would have panicked at.
//
// Nothing in here knows which server it talks to. If it did, it would prove nothing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"
)

// Longer than any way takes on a busy machine; each step has a budget of its own, the client's.
const patience = 20 * time.Minute

var ways = map[string]way{
	"node-driver":    {nodeDriver, "IMAGE NETWORK"},
	"terraform":      {terraform, "DISK-FILE"},
	"csi":            {csi, "IMAGE"},
	"cloud-provider": {cloudProvider, "IMAGE NETWORK"},
	"load-balancer":  {loadBalancer, ""},
}

// A way that a client goes, and what it is to be told: names as namespace/name.
type way struct {
	goes      func(*story)
	arguments string
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	way, known := ways[os.Args[1]]
	if !known || len(os.Args)-2 != len(strings.Fields(way.arguments)) {
		usage()
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, done := context.WithTimeout(ctx, patience)
	failed := tell(ctx, os.Args[1], way.goes, os.Args[2:])
	done()
	cancel()
	if failed != "" {
		fmt.Fprintln(os.Stderr, "not so: "+failed)
		os.Exit(1)
	}
}

func usage() {
	lines := make([]string, 0, len(ways))
	for name, way := range ways {
		lines = append(lines, strings.TrimSpace("  harvester "+name+" "+way.arguments))
	}
	sort.Strings(lines)
	fmt.Fprintf(os.Stderr, "usage, with KUBECONFIG=FILE:\n%s\n", strings.Join(lines, "\n"))
	os.Exit(2)
}
