package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// mapper: from a kind to where it is served, without having been told.
func mapper(s *story) {
	finder, err := discovery.NewDiscoveryClientForConfig(s.config)
	s.must(err, "make a discovery client")
	discovers(s, finder)

	cached := memory.NewMemCacheClient(finder)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	kinds := []struct{ kind, where, scope string }{
		{"ConfigMap.v1.", "/v1, Resource=configmaps", "namespace"},
		{"Node.v1.", "/v1, Resource=nodes", "root"},
		{"Lease.v1.coordination.k8s.io", "coordination.k8s.io/v1, Resource=leases", "namespace"},
		{"Role..rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1, Resource=roles", "namespace"},
		{"StorageClass..storage.k8s.io", "storage.k8s.io/v1, Resource=storageclasses", "root"},
		{"CustomResourceDefinition..apiextensions.k8s.io", "apiextensions.k8s.io/v1, Resource=customresourcedefinitions", "root"},
		{"VirtualMachine.v1.kubevirt.io", "kubevirt.io/v1, Resource=virtualmachines", "namespace"},
		{"VirtualMachine..kubevirt.io", "kubevirt.io/v1, Resource=virtualmachines", "namespace"},
	}
	for _, wanted := range kinds {
		parts := strings.SplitN(wanted.kind, ".", 3)
		versions := []string{}
		if parts[1] != "" {
			versions = append(versions, parts[1])
		}
		found, err := mapper.RESTMapping(schema.GroupKind{Group: parts[2], Kind: parts[0]}, versions...)
		s.works(err, wanted.kind+" is mapped")
		s.same(wanted.where+" "+wanted.scope, found.Resource.String()+" "+string(found.Scope.Name()), "to "+wanted.where)
	}
	resources := restmapper.NewShortcutExpander(mapper, cached, nil)
	for short, long := range map[string]string{"vm": "virtualmachines", "cm": "configmaps", "sc": "storageclasses", "virtualmachine": "virtualmachines"} {
		found, err := resources.ResourceFor(schema.GroupVersionResource{Resource: short})
		s.works(err, short+" is understood")
		s.same(long, found.Resource, "as "+long)
	}

	group := s.suffix + ".client-go.test"
	_, err = mapper.RESTMapping(schema.GroupKind{Group: group, Kind: gaugeKind})
	s.so(meta.IsNoMatchError(err), "a kind that is not there has no mapping", err)
	gauges := s.definesGauges()
	s.soon("one that was defined since has one after a reset", func() (bool, any) {
		mapper.Reset()
		found, err := mapper.RESTMapping(schema.GroupKind{Group: group, Kind: gaugeKind})
		return err == nil && found.Resource == gauges, err
	})
	describes(s, finder, "apis/"+group+"/v1", "v1."+gaugeKind)
}

func discovers(s *story, finder *discovery.DiscoveryClient) {
	groups, resources, failed, err := finder.GroupsAndMaybeResources()
	s.works(err, "the groups are discovered")
	s.so(resources != nil, "with all their resources at once", "groups alone")
	s.so(len(failed) == 0, "and none is missing", failed)
	for _, group := range groups.Groups {
		found := false
		for _, version := range group.Versions {
			found = found || version == group.PreferredVersion
			_, served := resources[schema.GroupVersion{Group: group.Name, Version: version.Version}]
			s.so(served, "resources of "+version.GroupVersion+" are there", resources)
		}
		s.so(found, "the preferred version of \""+group.Name+"\" is one that is served", group)
	}

	// Others may define kinds meanwhile, so both are asked anew until they agree.
	s.soon("clients that ask group by group find as many resources", func() (bool, any) {
		_, aggregated, _, err := finder.GroupsAndMaybeResources()
		if err != nil {
			return false, err
		}
		_, unaggregated, err := finder.WithLegacy().ServerGroupsAndResources()
		if err != nil {
			return false, err
		}
		together, apart := 0, countResources(unaggregated)
		for _, list := range aggregated {
			together += countResources([]*metav1.APIResourceList{list})
		}
		return together == apart, fmt.Sprintf("%d together, %d apart", together, apart)
	})

	preferred, err := finder.ServerPreferredResources()
	s.works(err, "the preferred resources are discovered")
	versions := map[string]string{}
	for _, list := range preferred {
		for _, resource := range list.APIResources {
			versions[resource.Kind+" "+list.GroupVersion] = strings.Join(resource.Verbs, " ")
		}
	}
	verbs := versions["VirtualMachine kubevirt.io/v1"]
	for _, verb := range []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} {
		s.so(strings.Contains(" "+verbs+" ", " "+verb+" "), "VirtualMachine can "+verb, verbs)
	}
	version, err := finder.ServerVersion()
	s.works(err, "the version is told")
	s.so(version.Major == "1" && version.Minor != "" && strings.HasPrefix(version.GitVersion, "v1."), "as the original tells its own", version)

	describes(s, finder, "api/v1", "core.v1.ConfigMap")
	describes(s, finder, "apis/kubevirt.io/v1", "v1.VirtualMachine")
}

// describes claims that the OpenAPI v3 document of a version is in the root and has a kind.
func describes(s *story, finder *discovery.DiscoveryClient, path, kind string) {
	var document []byte
	s.soon("the OpenAPI root has "+path, func() (bool, any) {
		paths, err := finder.OpenAPIV3().Paths()
		if err != nil || paths[path] == nil {
			return false, err
		}
		document, err = paths[path].Schema("application/json")
		return err == nil, err
	})
	var parsed struct {
		OpenAPI    string
		Components struct{ Schemas map[string]any }
	}
	s.works(json.Unmarshal(document, &parsed), "and its document is read")
	s.so(strings.HasPrefix(parsed.OpenAPI, "3."), "which is of OpenAPI 3", parsed.OpenAPI)
	found := []string{}
	for name := range parsed.Components.Schemas {
		if strings.HasSuffix(name, "."+kind) {
			found = append(found, name)
		}
	}
	s.so(len(found) == 1, "and has "+kind, found)
}

// countResources counts what is no subresource.
func countResources(lists []*metav1.APIResourceList) (count int) {
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if !strings.Contains(resource.Name, "/") {
				count++
			}
		}
	}
	return count
}
