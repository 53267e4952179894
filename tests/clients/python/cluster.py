"""The cluster that KUBECONFIG names, and a place of one's own in it."""

import contextlib
import secrets

import urllib3
from kubernetes import client
from kubernetes.client.rest import ApiException


@contextlib.contextmanager
def namespace(purpose):
    """A namespace with a name that nobody else has, removed in the end.

    Its end is asked for and not waited for: finishing it is a controller's work, and a bare API server has
    none.
    """
    core = client.CoreV1Api()
    name = f"python-{purpose}-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": name}})
    with removed_after(lambda: core.delete_namespace(name)):
        yield name


@contextlib.contextmanager
def removed_after(remove):
    """Calls `remove` in the end, whatever happened.

    After a failure it is only tried: the failure is what must be told, not that a server which is gone
    removes nothing.
    """
    try:
        yield
    except BaseException:
        with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
            remove()
        raise
    remove()
