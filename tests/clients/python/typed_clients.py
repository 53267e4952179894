"""The generated clients: a class per API group, a method per kind and verb."""

import base64
import copy

from kubernetes import client, utils, watch
from kubernetes.client.rest import ApiException

import cluster
from promises import Broken, equal, eventually, holds, is_gone, refused


def run():
    with cluster.namespace("typed") as namespace:
        core_objects_live_and_die(namespace)
        lists_come_in_pages(namespace)
        machines_are_custom_objects(namespace)
        access_is_reviewed(namespace)
        many_are_created_from_dicts(namespace)
        logs_are_refused_cleanly(namespace)


def core_objects_live_and_die(namespace):
    core = client.CoreV1Api()
    names = {found.metadata.name for found in core.list_namespace().items}
    holds("the namespaces are listed", {namespace, "default", "kube-system"} <= names, names)
    equal("a namespace is active at once", core.read_namespace(namespace).status.phase, "Active")

    bytes_in = base64.b64encode(bytes(range(256))).decode()
    body = client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="typed", labels={"app": "typed"}),
        data={"a": "ä €"},
        binary_data={"b": bytes_in},
    )
    created = core.create_namespaced_config_map(namespace, body)
    equal(
        "bytes and letters come back as sent",
        (created.data, created.binary_data),
        ({"a": "ä €"}, {"b": bytes_in}),
    )
    equal("what is read is what was created", core.read_namespaced_config_map("typed", namespace), created)
    patched = core.patch_namespaced_config_map("typed", namespace, {"data": {"c": "3"}})
    equal("a map is a patch to merge", patched.data, {"a": "ä €", "c": "3"})
    steps = [{"op": "remove", "path": "/data/c"}]
    equal(
        "a list is a JSON patch",
        core.patch_namespaced_config_map("typed", namespace, steps).data,
        {"a": "ä €"},
    )
    fresh = core.read_namespaced_config_map("typed", namespace)
    stale = copy.deepcopy(fresh)
    fresh.data = {"d": "4"}
    fresh.immutable = True
    fresh = core.replace_namespaced_config_map("typed", namespace, fresh)
    equal("a ConfigMap is replaced", (fresh.data, fresh.immutable), ({"d": "4"}, True))
    refused(
        "not by what is based on an old one",
        409,
        "Conflict",
        lambda: core.replace_namespaced_config_map("typed", namespace, stale),
    )
    refused(
        "nor at all once it is immutable",
        422,
        "Invalid",
        lambda: core.patch_namespaced_config_map("typed", namespace, {"data": {"d": "5"}}),
        saying="data: Forbidden: field is immutable when `immutable` is set",
    )
    deleted = core.delete_namespaced_config_map("typed", namespace, propagation_policy="Background")
    found = (deleted.status, deleted.details.name, deleted.details.uid)
    equal("a ConfigMap is deleted", found, ("Success", "typed", fresh.metadata.uid))
    holds("and is gone", is_gone(lambda: core.read_namespaced_config_map("typed", namespace)))

    secret = client.V1Secret(metadata=client.V1ObjectMeta(name="typed"), string_data={"key": "word"})
    created = core.create_namespaced_secret(namespace, secret)
    found = (created.type, created.data, created.string_data)
    equal(
        "a secret's words are kept as bytes",
        found,
        ("Opaque", {"key": base64.b64encode(b"word").decode()}, None),
    )
    refused(
        "a secret keeps its type",
        422,
        "Invalid",
        lambda: core.patch_namespaced_secret("typed", namespace, {"type": "kubernetes.io/tls"}),
        saying="type: Invalid value",
    )
    lease = client.V1Lease(
        metadata=client.V1ObjectMeta(name="typed"),
        spec=client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15),
    )
    held = client.CoordinationV1Api().create_namespaced_lease(namespace, lease)
    equal("a lease is held", held.spec.holder_identity, "me")
    version = client.VersionApi().get_code()
    holds("the version is told", version.major == "1" and version.git_version.startswith("v1."), version)


def lists_come_in_pages(namespace):
    core = client.CoreV1Api()
    names = [f"page-{number:02}" for number in range(25)]

    def create(name):
        metadata = client.V1ObjectMeta(name=name, labels={"paged": "yes"})
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata))

    for name in names:
        create(name)
    pages, versions, more = [], [], None
    while True:
        page = core.list_namespaced_config_map(
            namespace, label_selector="paged=yes", limit=10, _continue=more
        )
        pages.append([item.metadata.name for item in page.items])
        versions.append(page.metadata.resource_version)
        more = page.metadata._continue
        if not more:
            break
        if len(pages) == 1:
            create("page-99")
            core.delete_namespaced_config_map("page-15", namespace)
    equal("a list comes in pages", [len(page) for page in pages], [10, 10, 5])
    equal("which together are what there was at the first", sorted(sum(pages, [])), names)
    equal("and of one version", len(set(versions)), 1)
    now = core.list_namespaced_config_map(namespace, label_selector="paged=yes")
    wanted = [name for name in names if name != "page-15"] + ["page-99"]
    equal("a list from its beginning is of now", sorted(item.metadata.name for item in now.items), wanted)
    first = core.list_namespaced_config_map(namespace, limit=7)
    rest = core.list_namespaced_config_map(namespace, _continue=first.metadata._continue)
    equal("a page says how many remain", first.metadata.remaining_item_count, len(rest.items))
    refused(
        "a continuation that was made up is refused",
        400,
        "BadRequest",
        lambda: core.list_namespaced_config_map(namespace, limit=7, _continue="made-up"),
    )
    core.delete_collection_namespaced_config_map(namespace, label_selector="paged=yes")
    left = core.list_namespaced_config_map(namespace, label_selector="paged=yes")
    equal("a collection is deleted", left.items, [])


def machines_are_custom_objects(namespace):
    objects = client.CustomObjectsApi()
    machines = {"group": "kubevirt.io", "version": "v1", "namespace": namespace, "plural": "virtualmachines"}
    domain = {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "labels": {"app": "vm"}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}},
    }
    created = objects.create_namespaced_custom_object(body=body, **machines)
    equal("a machine is created", created["spec"]["runStrategy"], "Halted")
    refused(
        "not twice",
        409,
        "AlreadyExists",
        lambda: objects.create_namespaced_custom_object(body=body, **machines),
        saying='virtualmachines.kubevirt.io "vm" already exists',
    )
    merge = objects.patch_namespaced_custom_object(
        name="vm", body={"metadata": {"labels": {"tier": "db"}}}, **machines
    )
    equal("a machine is patched", merge["metadata"]["labels"], {"app": "vm", "tier": "db"})

    def replace():
        """Controllers write too: who loses to one reads again, as everybody must."""
        read = objects.get_namespaced_custom_object(name="vm", **machines)
        read["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"] = "128Mi"
        try:
            return objects.replace_namespaced_custom_object(name="vm", body=read, **machines)
        except ApiException as error:
            if error.status == 409:
                return None
            raise

    replaced = eventually("a machine is replaced", replace)
    memory = replaced["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"]
    equal("by what was sent", memory, "128Mi")
    listed = objects.list_namespaced_custom_object(label_selector="tier=db", **machines)
    found = (listed["kind"], [item["metadata"]["name"] for item in listed["items"]])
    equal("machines are listed", found, ("VirtualMachineList", ["vm"]))
    everywhere = objects.list_cluster_custom_object(
        "kubevirt.io", "v1", "virtualmachines", label_selector="tier=db"
    )
    holds(
        "of all namespaces too", namespace in {item["metadata"]["namespace"] for item in everywhere["items"]}
    )
    # The original has no Status for a path it does not serve, only words.
    gadgets = lambda: objects.list_namespaced_custom_object(
        "kubevirt.io", "v1", namespace, "gadgets"
    )  # noqa: E731
    holds("a kind that is not there is not found", is_gone(gadgets))
    objects.delete_namespaced_custom_object(name="vm", **machines)
    read = lambda: objects.get_namespaced_custom_object(name="vm", **machines)  # noqa: E731
    eventually("a machine is deleted", lambda: is_gone(read))


def access_is_reviewed(namespace):
    core = client.CoreV1Api()

    def may(api_client, verb, resource, group=""):
        wish = client.V1ResourceAttributes(namespace=namespace, verb=verb, resource=resource, group=group)
        spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=wish)
        review = client.V1SelfSubjectAccessReview(spec=spec)
        return client.AuthorizationV1Api(api_client).create_self_subject_access_review(review).status.allowed

    equal(
        "the administrator may do everything",
        may(client.ApiClient(), "delete", "virtualmachines", "kubevirt.io"),
        True,
    )
    core.create_namespaced_service_account(
        namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="reader"))
    )
    request = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600)
    )
    token = core.create_namespaced_service_account_token("reader", namespace, request).status.token
    reader = client.ApiClient(configuration_of(token))
    user = f"system:serviceaccount:{namespace}:reader"
    who = client.AuthenticationV1Api(reader).create_self_subject_review(client.V1SelfSubjectReview())
    equal("a service account is who its token says", who.status.user_info.username, user)
    equal("a service account may do nothing at first", may(reader, "list", "configmaps"), False)
    refused(
        "nor does it",
        403,
        "Forbidden",
        lambda: client.CoreV1Api(reader).list_namespaced_config_map(namespace),
        saying=f'configmaps is forbidden: User "{user}" cannot list resource "configmaps" in API group "" '
        f'in the namespace "{namespace}"',
    )
    rbac = client.RbacAuthorizationV1Api()
    rule = client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["get", "list"])
    rbac.create_namespaced_role(
        namespace, client.V1Role(metadata=client.V1ObjectMeta(name="reader"), rules=[rule])
    )
    binding = client.V1RoleBinding(
        metadata=client.V1ObjectMeta(name="reader"),
        role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="reader"),
        subjects=[client.RbacV1Subject(kind="ServiceAccount", name="reader", namespace=namespace)],
    )
    rbac.create_namespaced_role_binding(namespace, binding)
    eventually("a role that is bound to it is heeded", lambda: may(reader, "list", "configmaps"))
    client.CoreV1Api(reader).list_namespaced_config_map(namespace)
    equal("and allows no more than it says", may(reader, "delete", "configmaps"), False)
    spec = client.V1SelfSubjectRulesReviewSpec(namespace=namespace)
    review = client.V1SelfSubjectRulesReview(spec=spec)
    rules = client.AuthorizationV1Api(reader).create_self_subject_rules_review(review).status.resource_rules
    found = [sorted(rule.verbs) for rule in rules if rule.resources == ["configmaps"]]
    equal("its rules are told", found, [["get", "list"]])
    try:
        client.CoreV1Api(client.ApiClient(configuration_of(token + "x"))).list_namespaced_config_map(
            namespace
        )
    except ApiException as error:
        equal("a token that was changed is nobody's", error.status, 401)
    else:
        raise Broken("a token that was changed is nobody's")


def configuration_of(token):
    """This cluster, as the one who has `token` and nothing else."""
    configuration = client.Configuration.get_default_copy()
    configuration.cert_file = configuration.key_file = None
    configuration.api_key = {"authorization": f"Bearer {token}"}
    configuration.refresh_api_key_hook = None
    return configuration


def many_are_created_from_dicts(namespace):
    api_client = client.ApiClient()
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "many"}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        # A class that nobody provides: the claim stays a claim.
        "storageClassName": "python-none",
        "resources": {"requests": {"storage": "1Mi"}},
    }
    items = [
        of("v1", "ConfigMap", data={"a": "1"}),
        of("v1", "Secret", stringData={"a": "1"}),
        of("v1", "ServiceAccount"),
        of("v1", "PersistentVolumeClaim", spec=claim),
        of("rbac.authorization.k8s.io/v1", "Role", rules=rules),
        of("rbac.authorization.k8s.io/v1", "RoleBinding", roleRef=role, subjects=[]),
        of("coordination.k8s.io/v1", "Lease", spec={"holderIdentity": "me"}),
    ]
    several = {"apiVersion": "v1", "kind": "List", "items": items}
    created = utils.create_from_dict(api_client, copy.deepcopy(several), namespace=namespace)
    kinds = [type(one).__name__.removeprefix("V1") for one in created]
    equal("several kinds are created from one list", kinds, [item["kind"] for item in items])
    try:
        utils.create_from_dict(api_client, copy.deepcopy(several), namespace=namespace)
    except utils.FailToCreateError as failure:
        codes = [error.status for error in failure.api_exceptions]
        equal("a second time each is refused by itself", codes, [409] * len(items))
    else:
        raise Broken("a second time each is refused by itself\n  found: all were created")
    items[0]["data"] = {"a": "2"}
    utils.create_from_dict(
        api_client, copy.deepcopy(items[0]), namespace=namespace, apply=True, force_conflicts=True
    )
    applied = client.CoreV1Api().read_namespaced_config_map("many", namespace)
    owner = [entry.manager for entry in applied.metadata.managed_fields if entry.operation == "Apply"]
    equal("or it is applied", (applied.data, owner), ({"a": "2"}, ["python-client"]))


def of(api_version, kind, **rest):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "many"}, **rest}


def logs_are_refused_cleanly(namespace):
    core = client.CoreV1Api()
    refused(
        "there is no log of a pod that is not there",
        404,
        "NotFound",
        lambda: core.read_namespaced_pod_log("nothing", namespace),
        saying='pods "nothing" not found',
    )
    try:
        lines = list(watch.Watch().stream(core.read_namespaced_pod_log, "nothing", namespace))
    except ApiException as error:
        equal("nor can it be followed", error.status, 404)
    else:
        raise Broken(f"nor can it be followed\n  found: {lines!r}")
