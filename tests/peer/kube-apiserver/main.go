// Command kube-apiserver is the original API server, built from its published Go module so that it can
// be asked, and measured, beside Sheaf without the download of a binary. There is nothing of ours in it.
package main

import (
	"os"
	// As the original's own main package has them: time zones, log format, metrics.
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
