"""ConfigMaps through the dynamic client, from creation to deletion, and how some of many are chosen."""

from kubernetes.dynamic.exceptions import BadRequestError, ConflictError, NotFoundError

from patch_types import JSON, MERGE, STRATEGIC
from promises import equal, holds, raises, refused


def config_map(name, data, labels=None, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels or {}, **metadata},
        "data": data,
    }


def live_and_die(config_maps, namespace):
    here = {"namespace": namespace}
    rehearsed = config_maps.create(body=config_map("rehearsed", {}), dry_run="All", **here)
    holds("a rehearsed creation is answered as if done", rehearsed.metadata.uid, rehearsed.to_dict())
    refused(
        "a rehearsed creation leaves nothing",
        404,
        "NotFound",
        lambda: config_maps.get(name="rehearsed", **here),
    )

    created = config_maps.create(body=config_map("life", {"a": "1", "b": "2"}), **here)
    holds(
        "a ConfigMap is created",
        created.metadata.uid and created.metadata.creationTimestamp,
        created.to_dict(),
    )
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
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner.metadata.name,
            "uid": owner.metadata.uid,
        }
        body = {
            "metadata": {"ownerReferences": [reference], "finalizers": [f"example.com/{owner.metadata.name}"]}
        }
        owned = config_maps.patch(body=body, name="life", content_type=STRATEGIC, **here)
    found = (sorted(one.name for one in owned.metadata.ownerReferences), sorted(owned.metadata.finalizers))
    wanted = (["owner-1", "owner-2"], ["example.com/owner-1", "example.com/owner-2"])
    equal("a strategic merge patch merges lists by key and sets", found, wanted)
    nobodys = {"metadata": {"ownerReferences": None, "finalizers": None}}
    config_maps.patch(body=nobodys, name="life", content_type=MERGE, **here)
    steps = [
        {"op": "test", "path": "/data/d", "value": "4"},
        {"op": "move", "from": "/data/d", "path": "/data/e"},
    ]
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
        saying='Operation cannot be fulfilled on ConfigMap "life": the UID in the precondition (another) does not match '
        f"the UID in record ({fresh.metadata.uid}). The object might have been deleted and then recreated",
    )
    deleted = config_maps.delete(name="life", **here)
    equal(
        "it is deleted",
        (deleted.kind, deleted.status, deleted.details.uid),
        ("Status", "Success", fresh.metadata.uid),
    )
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


def are_selected(config_maps, namespace):
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
        saying='"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"',
    )
    refused("a selector that is none is refused", 400, "BadRequest", lambda: chosen("a in"))
    raises("the client knows a bad request", BadRequestError, lambda: chosen("a in"))
    config_maps.delete(label_selector="color=red", **here)
    equal("the selected are deleted and no other", chosen("set"), ["blue-1", "plain"])
