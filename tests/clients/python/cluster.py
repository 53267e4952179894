"""The cluster that KUBECONFIG names, and a place of one's own in it."""

import contextlib
import secrets

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
    try:
        yield name
    finally:
        core.delete_namespace(name)


@contextlib.contextmanager
def removed_after(remove):
    """Calls `remove` in the end, whatever happened; what is gone already is as good."""
    try:
        yield
    finally:
        try:
            remove()
        except ApiException as error:
            if error.status != 404:
                raise
