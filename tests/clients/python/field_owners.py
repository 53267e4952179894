"""Server-side apply through the dynamic client: who owns which field, and what becomes of it."""

from patch_types import MERGE
from promises import equal, refused


def of_config_maps(config_maps, namespace):
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
    equal(
        "two may own the same value",
        managers(shared)[("two", "Apply", "")],
        {"f:data": {"f:b": {}, "f:c": {}}},
    )
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
        body={"data": {"b": "5"}},
        name="applied",
        namespace=namespace,
        content_type=MERGE,
        field_manager="three",
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


def of_gadgets(gadgets, gadget, namespace):
    def applied(manager, spec, **options):
        return gadgets.server_side_apply(
            body=gadget("applied", spec=spec), namespace=namespace, field_manager=manager, **options
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
        (".spec.ports[number=3].name", 'conflict with "two"'),
        (".spec.size", 'conflict with "one"'),
        (".spec.size", 'conflict with "two"'),
    ]
    equal("every conflict is told at once", causes, wanted)
    forced = applied("three", {"size": 2}, force_conflicts=True)
    owners = sorted(who for who, fields in managers(forced).items() if "f:size" in fields.get("f:spec", {}))
    equal("a forced field has one owner", (forced.spec.size, owners), (2, [("three", "Apply", "")]))
    phase = gadgets.status.server_side_apply(
        body=gadget("applied", status={"phase": "Ready"}),
        namespace=namespace,
        field_manager="four",
    )
    fields = managers(phase)[("four", "Apply", "status")]
    equal(
        "a status is applied, and owned",
        (phase.status.phase, fields),
        ("Ready", {"f:status": {"f:phase": {}}}),
    )
    gadgets.delete(name="applied", namespace=namespace)


def managers(found):
    """Who owns which fields of an object, without those of the object's making."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in found.to_dict()["metadata"]["managedFields"]
    }
