// Command virtctl is the real client, built from its published Go module so that
// the end-to-end tests need no download of a binary. There is nothing of ours in
// it: if it needed something of ours, it would prove nothing.
package main

import (
	"os"

	"kubevirt.io/kubevirt/pkg/virtctl"

	// Login plugins that virtctl carries, so that a kubeconfig reads the same here.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	os.Exit(virtctl.Execute())
}
