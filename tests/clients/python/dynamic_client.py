"""The dynamic client: discovery, and every verb on a built-in kind and on one that is defined here."""

import secrets

from kubernetes import client, dynamic
from kubernetes.dynamic.exceptions import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    ResourceNotFoundError,
    UnprocessibleEntityError,
)

import cluster
from promises import Broken, equal, eventually, holds, is_gone, refused

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"


def run():
    with cluster.namespace("dynamic") as namespace:
        dynamic_client = dynamic.DynamicClient(client.ApiClient())
        kinds_are_discovered(dynamic_client)
        config_maps = dynamic_client.resources.get(api_version="v1", kind="ConfigMap")
        config_maps_live_and_die(config_maps, namespace)
        objects_are_selected(config_maps, namespace)
        fields_have_owners(config_maps, namespace)
        definitions = dynamic_client.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
        group = f"{secrets.token_hex(4)}.python.example.com"
        with cluster.removed_after(lambda: definitions.delete(name=f"gadgets.{group}")):
            gadgets = a_kind_is_defined(dynamic_client, definitions, group)
            custom_resources_live_and_die(gadgets, namespace)
            custom_fields_have_owners(gadgets, namespace)
        eventually("a definition is removed", lambda: is_gone(lambda: definitions.get(name=f"gadgets.{group}")))


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
        equal(f"{kind} of {api_version} is discovered", (found.name, found.namespaced, found.group_version), wanted)
        verbs = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
        if kind == "Namespace":
            verbs.remove("deletecollection")
        holds(f"{kind} has every verb", verbs <= set(found.verbs), found.verbs)
    machines = resources.get(api_version="kubevirt.io/v1", kind="VirtualMachine")
    holds("VirtualMachine has its status apart", "status" in machines.subresources, list(machines.subresources))
    holds("VirtualMachine is found by its short name", "vm" in machines.short_names, machines.short_names)
    equal("a kind is found without its version", resources.get(group="kubevirt.io", kind="VirtualMachine").preferred, True)
    try:
        resources.get(api_version="v1", kind="Gadget")
    except ResourceNotFoundError:
        print("ok: a kind that is not there is not discovered", flush=True)
    else:
        raise Broken("a kind that is not there is discovered")
    everything = [found for alike in resources for found in alike]
    names = {f"{found.group_version}/{found.kind}" for found in everything}
    holds("every group says what is in it", {"v1/ConfigMap", "kubevirt.io/v1/VirtualMachine"} <= names, sorted(names))


def config_map(name, data, labels=None, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels or {}, **metadata},
        "data": data,
    }


def config_maps_live_and_die(config_maps, namespace):
    here = {"namespace": namespace}
    rehearsed = config_maps.create(body=config_map("rehearsed", {}), dry_run="All", **here)
    holds("a rehearsed creation is answered as if done", rehearsed.metadata.uid, rehearsed.to_dict())
    refused("a rehearsed creation leaves nothing", 404, "NotFound", lambda: config_maps.get(name="rehearsed", **here))

    created = config_maps.create(body=config_map("life", {"a": "1", "b": "2"}), **here)
    holds("a ConfigMap is created", created.metadata.uid and created.metadata.creationTimestamp, created.to_dict())
    read = config_maps.get(name="life", **here)
    equal("it is read as it was created", read.to_dict(), created.to_dict())
    status = refused(
        "it is not created twice",
        409,
        "AlreadyExists",
        lambda: config_maps.create(body=config_map("life", {}), **here),
        saying='configmaps "life" already exists',
    )
    equal("the refusal names it", status["details"], {"name": "life", "kind": "configmaps"})

    merged = config_maps.patch(body={"data": {"a": None, "c": "3"}}, name="life", content_type=MERGE, **here)
    equal("a merge patch adds and removes", merged.data.to_dict(), {"b": "2", "c": "3"})
    marked = config_map("life", {"d": "4"})
    marked["data"]["$patch"] = "replace"
    replaced = config_maps.patch(body=marked, content_type=STRATEGIC, **here)
    equal("a strategic merge patch obeys its directives", replaced.data.to_dict(), {"d": "4"})
    owners = [config_maps.create(body=config_map(name, {}), **here) for name in ["owner-1", "owner-2"]]
    for owner in owners:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name, "uid": owner.metadata.uid}
        body = {"metadata": {"ownerReferences": [reference], "finalizers": [f"example.com/{owner.metadata.name}"]}}
        owned = config_maps.patch(body=body, name="life", content_type=STRATEGIC, **here)
    found = (sorted(one.name for one in owned.metadata.ownerReferences), sorted(owned.metadata.finalizers))
    wanted = (["owner-1", "owner-2"], ["example.com/owner-1", "example.com/owner-2"])
    equal("a strategic merge patch merges lists by key and sets", found, wanted)
    nobodys = {"metadata": {"ownerReferences": None, "finalizers": None}}
    config_maps.patch(body=nobodys, name="life", content_type=MERGE, **here)
    steps = [{"op": "test", "path": "/data/d", "value": "4"}, {"op": "move", "from": "/data/d", "path": "/data/e"}]
    moved = config_maps.patch(body=steps, name="life", content_type=JSON, **here)
    equal("a JSON patch tests and moves", moved.data.to_dict(), {"e": "4"})
    refused(
        "a JSON patch whose test fails changes nothing",
        422,
        "Invalid",
        lambda: config_maps.patch(body=steps, name="life", content_type=JSON, **here),
    )

    stale = moved.to_dict()
    fresh = moved.to_dict()
    fresh["data"] = {"f": "6"}
    fresh = config_maps.replace(body=fresh, **here)
    equal("it is replaced", fresh.data.to_dict(), {"f": "6"})
    holds("which moves its version", fresh.metadata.resourceVersion != stale["metadata"]["resourceVersion"])
    unchanged = config_maps.replace(body=fresh, **here)
    equal("replacing it by itself changes nothing", unchanged.to_dict(), fresh.to_dict())
    status = refused(
        "it is not replaced by what is based on an old one",
        409,
        "Conflict",
        lambda: config_maps.replace(body=stale, **here),
        saying="the object has been modified; please apply your changes to the latest version and try again",
    )
    equal("the conflict names it", status["details"], {"name": "life", "kind": "configmaps"})
    refused(
        "what is not there is not replaced",
        404,
        "NotFound",
        lambda: config_maps.replace(body=config_map("nothing", {}), **here),
        saying='configmaps "nothing" not found',
    )
    raises("the client knows a conflict", ConflictError, lambda: config_maps.replace(body=stale, **here))

    refused(
        "it is not deleted in place of another",
        409,
        "Conflict",
        lambda: config_maps.delete(name="life", body={"preconditions": {"uid": "another"}}, **here),
        saying=f"the UID in the precondition (another) does not match the UID in record ({fresh.metadata.uid})",
    )
    deleted = config_maps.delete(name="life", **here)
    equal("it is deleted", (deleted.kind, deleted.status, deleted.details.uid), ("Status", "Success", fresh.metadata.uid))
    status = refused(
        "then it is not there",
        404,
        "NotFound",
        lambda: config_maps.get(name="life", **here),
        saying='configmaps "life" not found',
    )
    equal("the refusal names it too", status["details"], {"name": "life", "kind": "configmaps"})
    raises("the client knows that too", NotFoundError, lambda: config_maps.delete(name="life", **here))
    refused(
        "names are checked",
        422,
        "Invalid",
        lambda: config_maps.create(body=config_map("Not_A_Name", {}), **here),
        saying="metadata.name: Invalid value",
    )


def raises(what, error, call):
    try:
        call()
    except error:
        print(f"ok: {what} ({error.__name__})", flush=True)
        return
    raise Broken(f"{what}: nothing was raised")


def objects_are_selected(config_maps, namespace):
    here = {"namespace": namespace}
    for name, labels in {
        "red-1": {"color": "red", "set": "s"},
        "red-2": {"color": "red", "set": "s", "old": ""},
        "blue-1": {"color": "blue", "set": "s"},
        "plain": {"set": "s"},
    }.items():
        config_maps.create(body=config_map(name, {}, labels), **here)

    def chosen(labels, fields=None):
        found = config_maps.get(label_selector=labels, field_selector=fields, **here)
        return sorted(item.metadata.name for item in found.items)

    for labels, names in {
        "set=s": ["blue-1", "plain", "red-1", "red-2"],
        "color=red": ["red-1", "red-2"],
        "color==red,!old": ["red-1"],
        "set,color!=red": ["blue-1", "plain"],
        "color in (red, blue),old": ["red-2"],
        "set,color notin (red)": ["blue-1", "plain"],
        "color=green": [],
    }.items():
        equal(f"the labels {labels!r} select", chosen(labels), names)
    for fields, names in {
        "metadata.name=red-1": ["red-1"],
        "metadata.name!=red-1": ["blue-1", "plain", "red-2"],
        f"metadata.namespace={namespace},metadata.name=plain": ["plain"],
        "metadata.namespace=elsewhere": [],
    }.items():
        equal(f"the fields {fields!r} select", chosen("set", fields), names)
    refused(
        "a field that is not indexed selects nothing silently",
        400,
        "BadRequest",
        lambda: chosen("set", "data.a=1"),
        saying="field label not supported",
    )
    refused("a selector that is none is refused", 400, "BadRequest", lambda: chosen("a in"))
    raises("the client knows a bad request", BadRequestError, lambda: chosen("a in"))
    config_maps.delete(label_selector="color=red", **here)
    equal("the selected are deleted and no other", chosen("set"), ["blue-1", "plain"])


def managers(found):
    """Who owns which fields of an object, without those of the object's making."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in found.to_dict()["metadata"]["managedFields"]
    }


def fields_have_owners(config_maps, namespace):
    def applied(manager, data, **options):
        return config_maps.server_side_apply(
            body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data},
            namespace=namespace,
            field_manager=manager,
            **options,
        )

    refused(
        "who applies says who it is",
        422,
        "Invalid",
        lambda: applied(None, {}),
        saying="fieldManager: Required value: is required for apply patch",
    )
    created = applied("one", {"a": "1", "b": "2"})
    equal(
        "what is applied is created, and owned",
        managers(created),
        {("one", "Apply", ""): {"f:data": {"f:a": {}, "f:b": {}}}},
    )
    again = applied("one", {"a": "1", "b": "2"})
    equal("applied again it is left alone", again.metadata.resourceVersion, created.metadata.resourceVersion)
    shared = applied("two", {"b": "2", "c": "3"})
    equal("two may own the same value", managers(shared)[("two", "Apply", "")], {"f:data": {"f:b": {}, "f:c": {}}})
    for options in [{}, {"force_conflicts": False}]:
        status = refused(
            f"nobody takes another's field unasked {options}",
            409,
            "Conflict",
            lambda options=options: applied("two", {"a": "9", "c": "3"}, **options),
            saying='Apply failed with 1 conflict: conflict with "one": .data.a',
        )
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    equal("the conflict names the field and its owner", status["details"]["causes"], [cause])
    forced = applied("two", {"a": "9", "c": "3"}, force_conflicts=True)
    equal("a forced value is taken", forced.data.to_dict(), {"a": "9", "b": "2", "c": "3"})
    equal(
        "and its field changes hands",
        managers(forced),
        {
            ("one", "Apply", ""): {"f:data": {"f:b": {}}},
            ("two", "Apply", ""): {"f:data": {"f:a": {}, "f:c": {}}},
        },
    )
    left = applied("two", {"a": "9"})
    equal("what its only owner leaves out is removed", left.data.to_dict(), {"a": "9", "b": "2"})
    config_maps.patch(
        body={"data": {"b": "5"}}, name="applied", namespace=namespace, content_type=MERGE, field_manager="three"
    )
    refused(
        "who patches owns what it changed",
        409,
        "Conflict",
        lambda: applied("one", {"b": "2"}),
        saying='conflict with "three" using v1: .data.b',
    )
    refused(
        "only who applies may force",
        422,
        "Invalid",
        lambda: config_maps.patch(
            body={}, name="applied", namespace=namespace, content_type=MERGE, force_conflicts=True
        ),
        saying="force: Forbidden: may not be specified for non-apply patch",
    )
    config_maps.delete(name="applied", namespace=namespace)


def a_kind_is_defined(dynamic_client, definitions, group):
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1},
                    "color": {"type": "string", "default": "blue", "enum": ["blue", "red"]},
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["number"],
                        "items": {
                            "type": "object",
                            "required": ["number"],
                            "properties": {"number": {"type": "integer"}, "name": {"type": "string"}},
                        },
                    },
                },
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
    definitions.create(
        body={
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"gadgets.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                        "subresources": {"status": {}},
                    }
                ],
            },
        }
    )

    def established():
        conditions = definitions.get(name=f"gadgets.{group}").to_dict().get("status", {}).get("conditions", [])
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    eventually("a definition is established", established)

    def discovered():
        dynamic_client.resources.invalidate_cache()
        try:
            return dynamic_client.resources.get(api_version=f"{group}/v1", kind="Gadget")
        except (ResourceNotFoundError, NotFoundError):
            return None

    return eventually("a defined kind is discovered", discovered)


def gadget(gadgets, name, spec):
    return {"apiVersion": gadgets.group_version, "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


def custom_resources_live_and_die(gadgets, namespace):
    here = {"namespace": namespace}
    group = gadgets.group
    body = gadget(gadgets, "life", {"size": 1, "shape": "round"})
    body["status"] = {"phase": "Claimed"}
    created = gadgets.create(body=body, **here).to_dict()
    wanted = ({"size": 1, "color": "blue"}, None, 1)
    found = (created["spec"], created.get("status"), created["metadata"]["generation"])
    equal("a custom resource is created: defaulted, pruned, without a status", found, wanted)
    equal("it is read as it was created", gadgets.get(name="life", **here).to_dict(), created)
    status = refused(
        "a custom resource is checked",
        422,
        "Invalid",
        lambda: gadgets.create(body=gadget(gadgets, "small", {"size": 0}), **here),
        saying=f'Gadget.{group} "small" is invalid: spec.size: Invalid value: 0: '
        "spec.size in body should be greater than or equal to 1",
    )
    equal("the refusal names the field", [cause["field"] for cause in status["details"]["causes"]], ["spec.size"])
    raises(
        "the client knows what cannot be",
        UnprocessibleEntityError,
        lambda: gadgets.create(body=gadget(gadgets, "none", {}), **here),
    )

    merged = gadgets.patch(body={"spec": {"size": 2}}, name="life", content_type=MERGE, **here)
    equal("a merge patch makes a new generation", (merged.spec.size, merged.metadata.generation), (2, 2))
    steps = [{"op": "replace", "path": "/spec/size", "value": 3}]
    stepped = gadgets.patch(body=steps, name="life", content_type=JSON, **here)
    equal("a JSON patch makes another", (stepped.spec.size, stepped.metadata.generation), (3, 3))
    refused(
        "a custom resource has no strategic merge patch",
        415,
        "UnsupportedMediaType",
        lambda: gadgets.patch(body={"spec": {"size": 4}}, name="life", content_type=STRATEGIC, **here),
        saying="application/merge-patch+json",
    )
    phase = gadgets.status.patch(
        body={"spec": {"size": 9}, "status": {"phase": "Ready"}}, name="life", content_type=MERGE, **here
    )
    found = (phase.status.phase, phase.spec.size, phase.metadata.generation)
    equal("its status is patched, and nothing beside it", found, ("Ready", 3, 3))
    body = phase.to_dict()
    body["spec"]["size"], body["status"]["phase"] = 4, "Broken"
    replaced = gadgets.replace(body=body, **here)
    found = (replaced.status.phase, replaced.spec.size, replaced.metadata.generation)
    equal("it is replaced, but for its status", found, ("Ready", 4, 4))
    body = replaced.to_dict()
    body["status"]["phase"] = "Done"
    done = gadgets.status.replace(body=body, **here)
    equal("its status is replaced", (done.status.phase, done.metadata.generation), ("Done", 4))
    refused(
        "it is not replaced by what is based on an old one",
        409,
        "Conflict",
        lambda: gadgets.replace(body=phase.to_dict(), **here),
        saying=f'Operation cannot be fulfilled on gadgets.{group} "life"',
    )
    body = done.to_dict()
    del body["metadata"]["resourceVersion"]
    refused(
        "a custom resource is not replaced regardless of its version",
        422,
        "Invalid",
        lambda: gadgets.replace(body=body, **here),
        saying="metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    )

    gadgets.create(body=gadget(gadgets, "other", {"size": 1, "color": "red"}), **here)
    listed = gadgets.get(field_selector="metadata.name=other", **here)
    found = (listed.kind, [item.metadata.name for item in listed.items])
    equal("custom resources are selected", found, ("GadgetList", ["other"]))

    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    gadgets.patch(body=held, name="life", content_type=MERGE, **here)
    gadgets.delete(name="life", **here)
    leaving = gadgets.get(name="life", **here)
    holds("what has a finalizer is marked and stays", leaving.metadata.deletionTimestamp, leaving.to_dict())
    released = {"metadata": {"finalizers": None}}
    gadgets.patch(body=released, name="life", content_type=MERGE, **here)
    status = refused(
        "and goes with the finalizer",
        404,
        "NotFound",
        lambda: gadgets.get(name="life", **here),
        saying=f'gadgets.{group} "life" not found',
    )
    equal("the refusal names its group", status["details"], {"name": "life", "group": group, "kind": "gadgets"})


def custom_fields_have_owners(gadgets, namespace):
    def applied(manager, spec, **options):
        return gadgets.server_side_apply(
            body=gadget(gadgets, "applied", spec), namespace=namespace, field_manager=manager, **options
        )

    def ports(*numbers):
        return [{"number": number, "name": f"port-{number}"} for number in numbers]

    applied("one", {"size": 1, "ports": ports(1, 2)})
    both = applied("two", {"size": 1, "ports": ports(3)})
    found = sorted(port.number for port in both.spec.ports)
    equal("a list by key is of all who apply to it", found, [1, 2, 3])
    less = applied("one", {"size": 1, "ports": ports(2)})
    equal("each removes its own items", sorted(port.number for port in less.spec.ports), [2, 3])
    status = refused(
        "nobody takes another's field of a custom resource unasked",
        409,
        "Conflict",
        lambda: applied("three", {"size": 2, "ports": [{"number": 3, "name": "mine"}]}),
        saying="Apply failed with 3 conflicts",
    )
    causes = sorted((cause["field"], cause["message"]) for cause in status["details"]["causes"])
    wanted = [
        ('.spec.ports[number=3].name', 'conflict with "two"'),
        (".spec.size", 'conflict with "one"'),
        (".spec.size", 'conflict with "two"'),
    ]
    equal("every conflict is told at once", causes, wanted)
    forced = applied("three", {"size": 2}, force_conflicts=True)
    owners = sorted(who for who, fields in managers(forced).items() if "f:size" in fields.get("f:spec", {}))
    equal("a forced field has one owner", (forced.spec.size, owners), (2, [("three", "Apply", "")]))
    phase = gadgets.status.server_side_apply(
        body={"apiVersion": gadgets.group_version, "kind": "Gadget", "metadata": {"name": "applied"}, "status": {"phase": "Ready"}},
        namespace=namespace,
        field_manager="four",
    )
    fields = managers(phase)[("four", "Apply", "status")]
    equal("a status is applied, and owned", (phase.status.phase, fields), ("Ready", {"f:status": {"f:phase": {}}}))
    gadgets.delete(name="applied", namespace=namespace)
