// Command client-go drives the cluster that KUBECONFIG names through the original's
// own Go libraries and says what came of it. Each story is a subcommand with
// a namespace of its own: it prints one line per thing that is so, and at the first
// thing that is not, it says which and exits with 1.
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

// Longer than any story takes on a busy machine, restarts of the server included.
const patience = 10 * time.Minute

var stories = map[string]func(*story){
	"typed":       typed,
	"owners":      owners,
	"informers":   informersAcrossRestarts,
	"election":    election,
	"apply":       apply,
	"dynamic":     dynamicClient,
	"mapper":      mapper,
	"confidences": confidences,
}

func main() {
	if len(os.Args) < 2 || stories[os.Args[1]] == nil {
		usage()
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, done := context.WithTimeout(ctx, patience)
	failed := tell(ctx, stories[os.Args[1]], os.Args[2:])
	done()
	cancel()
	if failed != "" {
		fmt.Fprintln(os.Stderr, "not so: "+failed)
		os.Exit(1)
	}
}

func usage() {
	names := make([]string, 0, len(stories))
	for name := range stories {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "usage: KUBECONFIG=FILE client-go %s\n", strings.Join(names, "|"))
	os.Exit(2)
}
