package main

import (
	"net/http"
	"strings"
	"sync"

	harvester "github.com/harvester/harvester/pkg/generated/clientset/versioned"
	"github.com/harvester/harvester/pkg/generated/clientset/versioned/scheme"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// use makes the story's clients anew, as Harvester's clients make theirs: nothing is said about content types, so the
// one of Kubernetes sends protobuf and the others JSON.
func (s *story) use(config *rest.Config) {
	s.wire = &wire{}
	s.config = rest.CopyConfig(config)
	s.config.Wrap(s.wire.around)
	var err error
	s.harvester, err = harvester.NewForConfig(s.config)
	s.must(err, "make a client of Harvester's")
	s.kubernetes, err = kubernetes.NewForConfig(s.config)
	s.must(err, "make a client of Kubernetes'")
	of := rest.CopyConfig(s.config)
	of.GroupVersion = &schema.GroupVersion{Group: "subresources.kubevirt.io", Version: "v1"}
	of.APIPath = "/apis"
	of.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	s.subresources, err = rest.RESTClientFor(of)
	s.must(err, "make a client of subresources")
}

// does is a PUT on a subresource of a VirtualMachine, with neither body nor content type.
func (s *story) does(machine, what string) error {
	return s.subresources.Put().Namespace(s.namespace).Resource("virtualmachines").Name(machine).
		SubResource(what).Do(s.ctx).Error()
}

// wire notes what was sent.
type wire struct {
	sync.Mutex
	sent []sent
}

type sent struct{ method, path, contentType string }

func (w *wire) around(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(request *http.Request) (*http.Response, error) {
		w.Lock()
		w.sent = append(w.sent, sent{request.Method, request.URL.Path, request.Header.Get("Content-Type")})
		w.Unlock()
		return next.RoundTrip(request)
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// types is the content types of all requests of a method whose path ends so.
func (w *wire) types(method, suffix string) []string {
	w.Lock()
	defer w.Unlock()
	var found []string
	for _, one := range w.sent {
		if one.method == method && strings.HasSuffix(one.path, suffix) {
			found = append(found, one.contentType)
		}
	}
	return found
}
