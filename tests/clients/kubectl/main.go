// Command kubectl is the real client, built from its published Go module so that
// the end-to-end tests need no download of a binary. There is nothing of ours in
// it: if it needed something of ours, it would prove nothing.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	// Login plugins that kubectl carries, so that a kubeconfig reads the same here.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	command := cmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		// Prints the error as kubectl does, and chooses the exit code.
		util.CheckErr(err)
	}
	os.Exit(0)
}
