"""Custom resources through the dynamic client: their definition, their life and their end."""

import secrets

from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError, UnprocessibleEntityError

import cluster
import field_owners
from patch_types import JSON, MERGE, STRATEGIC
from promises import equal, eventually, holds, is_gone, raises, refused


def are_defined(dynamic_client, namespace):
    """Defines a kind of a group that nobody else has, uses it and removes it."""
    definitions = dynamic_client.resources.get(
        api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition"
    )
    group = f"{secrets.token_hex(4)}.python.example.com"
    with cluster.removed_after(lambda: definitions.delete(name=f"gadgets.{group}")):
        gadgets = a_kind_is_defined(dynamic_client, definitions, group)

        def gadget(name, **parts):
            return {
                "apiVersion": gadgets.group_version,
                "kind": "Gadget",
                "metadata": {"name": name},
                **parts,
            }

        live_and_die(gadgets, gadget, namespace)
        field_owners.of_gadgets(gadgets, gadget, namespace)
    eventually("a definition is removed", lambda: is_gone(lambda: definitions.get(name=f"gadgets.{group}")))


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
                "names": {
                    "plural": "gadgets",
                    "singular": "gadget",
                    "kind": "Gadget",
                    "listKind": "GadgetList",
                },
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
        status = definitions.get(name=f"gadgets.{group}").to_dict().get("status") or {}
        # The original has none as null until it has one.
        conditions = status.get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    eventually("a definition is established", established)

    def discovered():
        dynamic_client.resources.invalidate_cache()
        try:
            return dynamic_client.resources.get(api_version=f"{group}/v1", kind="Gadget")
        except (ResourceNotFoundError, NotFoundError):
            return None

    return eventually("a defined kind is discovered", discovered)


def live_and_die(gadgets, gadget, namespace):
    here = {"namespace": namespace}
    group = gadgets.group
    body = gadget("life", spec={"size": 1, "shape": "round"})
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
        lambda: gadgets.create(body=gadget("small", spec={"size": 0}), **here),
        saying=f'Gadget.{group} "small" is invalid: spec.size: Invalid value: 0: '
        "spec.size in body should be greater than or equal to 1",
    )
    equal(
        "the refusal names the field",
        [cause["field"] for cause in status["details"]["causes"]],
        ["spec.size"],
    )
    raises(
        "the client knows what cannot be",
        UnprocessibleEntityError,
        lambda: gadgets.create(body=gadget("none", spec={}), **here),
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

    gadgets.create(body=gadget("other", spec={"size": 1, "color": "red"}), **here)
    listed = gadgets.get(field_selector="metadata.name=other", **here)
    found = (listed.kind, [item.metadata.name for item in listed.items])
    equal("custom resources are selected", found, ("GadgetList", ["other"]))

    events = [
        (event["type"], event["object"].spec.size)
        for event in gadgets.watch(
            name="life", resource_version=created["metadata"]["resourceVersion"], timeout=1, **here
        )
    ]
    # The second 3 and the second 4 are writes of the status alone.
    equal("a custom resource is watched", events, [("MODIFIED", size) for size in [2, 3, 3, 4, 4]])

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
    equal(
        "the refusal names its group", status["details"], {"name": "life", "group": group, "kind": "gadgets"}
    )
