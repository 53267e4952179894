"""The dynamic client: discovery, and every verb on a built-in kind and on one that is defined here."""

from kubernetes import client, dynamic
from kubernetes.dynamic.exceptions import ResourceNotFoundError

import cluster
import config_maps
import custom_resources
import field_owners
from promises import equal, holds, raises


def run():
    with cluster.namespace("dynamic") as namespace:
        cluster_client = dynamic.DynamicClient(client.ApiClient())
        kinds_are_discovered(cluster_client)
        maps = cluster_client.resources.get(api_version="v1", kind="ConfigMap")
        config_maps.live_and_die(maps, namespace)
        config_maps.are_selected(maps, namespace)
        field_owners.of_config_maps(maps, namespace)
        custom_resources.are_defined(cluster_client, namespace)


def kinds_are_discovered(dynamic_client):
    version = dynamic_client.version["kubernetes"]["gitVersion"]
    holds("the server says which version of Kubernetes it speaks", version.startswith("v1."), version)
    resources = dynamic_client.resources
    for api_version, kind, plural, namespaced in [
        ("v1", "ConfigMap", "configmaps", True),
        ("v1", "Namespace", "namespaces", False),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", False),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False),
        ("kubevirt.io/v1", "VirtualMachine", "virtualmachines", True),
        ("kubevirt.io/v1", "VirtualMachineInstance", "virtualmachineinstances", True),
        ("harvesterhci.io/v1beta1", "VirtualMachineImage", "virtualmachineimages", True),
    ]:
        found = resources.get(api_version=api_version, kind=kind)
        wanted = (plural, namespaced, api_version)
        equal(
            f"{kind} of {api_version} is discovered",
            (found.name, found.namespaced, found.group_version),
            wanted,
        )
        verbs = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
        if kind == "Namespace":
            verbs.remove("deletecollection")
        holds(f"{kind} has every verb", verbs <= set(found.verbs), found.verbs)
    machines = resources.get(api_version="kubevirt.io/v1", kind="VirtualMachine")
    holds(
        "VirtualMachine has its status apart", "status" in machines.subresources, list(machines.subresources)
    )
    holds("VirtualMachine is found by its short name", "vm" in machines.short_names, machines.short_names)
    equal(
        "a kind is found without its version",
        resources.get(group="kubevirt.io", kind="VirtualMachine").preferred,
        True,
    )
    raises(
        "a kind that is not there is not discovered",
        ResourceNotFoundError,
        lambda: resources.get(api_version="v1", kind="Gadget"),
    )
    everything = [found for alike in resources for found in alike]
    names = {f"{found.group_version}/{found.kind}" for found in everything}
    holds(
        "every group says what is in it",
        {"v1/ConfigMap", "kubevirt.io/v1/VirtualMachine"} <= names,
        sorted(names),
    )
