"""Secrets, tokens and what machines are first started with, in every form in which this client sends or is sent them."""

import base64
import secrets

from kubernetes import client, dynamic, utils
from kubernetes.client.rest import ApiException

import cluster
from promises import Broken, equal, holds
from typed_clients import configuration_of


def run():
    with cluster.namespace("confidences") as namespace:
        secrets_are_written(namespace)
        secrets_are_patched(namespace)
        secrets_are_dynamic(namespace)
        machines_are_seeded(namespace)
        tokens_are_issued(namespace)


def confide(secret):
    """Tells a secret to who started this program."""
    print(f"secret: {secret}", flush=True)
    return secret


def draw():
    return confide("Qx" + secrets.token_hex(10))


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def secrets_are_written(namespace):
    core = client.CoreV1Api()
    metadata = client.V1ObjectMeta(name="typed", annotations={"note": draw()})
    body = client.V1Secret(metadata=metadata, string_data={"text": draw()}, data={"data": encoded(draw())})
    made = core.create_namespaced_secret(namespace, body)
    equal("a secret is made", sorted(made.data), ["data", "text"])
    made.data = {"data": encoded(draw())}
    core.replace_namespaced_secret("typed", namespace, made)
    core.list_namespaced_secret(namespace)
    try:
        core.create_namespaced_secret(namespace, {"metadata": {"name": "bad"}, "data": {"a": draw() + "!"}})
    except ApiException as error:
        equal("a secret that is no base64 is refused", error.status, 400)
    else:
        raise Broken("a secret that is no base64 is refused")


def secrets_are_patched(namespace):
    core = client.CoreV1Api()
    core.patch_namespaced_secret("typed", namespace, {"stringData": {"text": draw()}})
    core.patch_namespaced_secret(
        "typed", namespace, [{"op": "add", "path": "/data/step", "value": encoded(draw())}]
    )
    applied = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "typed"},
        "stringData": {"text": draw()},
    }
    utils.create_from_dict(
        client.ApiClient(), applied, namespace=namespace, apply=True, force_conflicts=True
    )
    found = core.read_namespaced_secret("typed", namespace).data["text"]
    equal("a secret is patched and applied", found, encoded(applied["stringData"]["text"]))


def secrets_are_dynamic(namespace):
    kind = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="Secret")

    def body():
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "dynamic"},
            "stringData": {"text": draw()},
        }

    kind.create(body=body(), namespace=namespace)
    for content_type in ["application/merge-patch+json", "application/strategic-merge-patch+json"]:
        kind.patch(body=body(), namespace=namespace, content_type=content_type)
    kind.server_side_apply(
        body=body(), name="dynamic", namespace=namespace, field_manager="story", force_conflicts=True
    )
    read = kind.get(name="dynamic", namespace=namespace)
    holds("a secret of the dynamic client is read", read.data.text)


def machines_are_seeded(namespace):
    objects = client.CustomObjectsApi()
    machines = {"group": "kubevirt.io", "version": "v1", "namespace": namespace, "plural": "virtualmachines"}
    seed = {"userData": f"#cloud-config\npassword: {draw()}\n", "networkDataBase64": encoded(draw())}
    domain = {
        "devices": {"disks": [{"name": "seed", "disk": {"bus": "virtio"}}]},
        "resources": {"requests": {"memory": "64Mi"}},
    }
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm"},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {"domain": domain, "volumes": [{"name": "seed", "cloudInitNoCloud": seed}]}},
        },
    }
    objects.create_namespaced_custom_object(body=body, **machines)
    volumes = [{"name": "seed", "cloudInitConfigDrive": {"userDataBase64": encoded(draw())}}]
    patch = {"spec": {"template": {"spec": {"volumes": volumes}}}}
    patched = objects.patch_namespaced_custom_object(name="vm", body=patch, **machines)
    equal("a machine has another seed", patched["spec"]["template"]["spec"]["volumes"], volumes)


def tokens_are_issued(namespace):
    core = client.CoreV1Api()
    core.create_namespaced_service_account(
        namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="robot"))
    )
    request = client.AuthenticationV1TokenRequest(
        spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600)
    )
    token = confide(core.create_namespaced_service_account_token("robot", namespace, request).status.token)
    review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
    reviewed = client.AuthenticationV1Api().create_token_review(review)
    equal("a token is good", reviewed.status.authenticated, True)
    try:
        client.CoreV1Api(client.ApiClient(configuration_of(token))).list_namespaced_secret(namespace)
    except ApiException as error:
        equal("who has it may not read secrets", error.status, 403)
    else:
        raise Broken("who has it may not read secrets")
