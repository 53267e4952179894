"""Counts on in a few ConfigMaps for as long as it is let, whatever becomes of the server."""

import threading
import time

import urllib3
from kubernetes import client
from kubernetes.client.rest import ApiException

from promises import Broken

# What selects the ConfigMaps of this program: the cluster puts some of its own into every namespace.
LABELS = "watched=yes"


def config_map(name, count, **data):
    metadata = client.V1ObjectMeta(name=name, labels={"watched": "yes"})
    return client.V1ConfigMap(metadata=metadata, data={"count": str(count), **data})


class Writer(threading.Thread):
    """Writes to each of its objects in turn.

    A write that breaks off may have been done or not: the object is read to see which, so that no number is
    left out and none is written twice.
    """

    def __init__(self, namespace, names):
        super().__init__(daemon=True)
        self.core = client.CoreV1Api(client.ApiClient())
        self.namespace = namespace
        self.objects = dict.fromkeys(names)
        self.broken = 0
        self.failure = None
        self.stopping = threading.Event()

    def create(self):
        for name in self.objects:
            self.objects[name] = self.core.create_namespaced_config_map(self.namespace, config_map(name, 0))

    def run(self):
        try:
            while not self.stopping.is_set():
                for name in self.objects:
                    self.count_on(name)
                time.sleep(0.02)
        except Exception as failure:  # told to who asks, who is another thread
            self.failure = failure

    def count_on(self, name):
        known = self.objects[name]
        count = self.count(name) + 1
        body = config_map(name, count)
        body.metadata.resource_version = known.metadata.resource_version
        try:
            self.objects[name] = self.core.replace_namespaced_config_map(name, self.namespace, body)
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            # The client sends a replacement that broke off once more by itself, which is a conflict if the
            # first was done.
            if isinstance(error, ApiException) and error.status != 409 and error.status < 500:
                raise
            self.broken += 1
            self.look(name, count)

    def look(self, name, count):
        """Reads what the server has, once it has come back: this count or the one before."""
        while True:
            try:
                self.objects[name] = self.core.read_namespaced_config_map(name, self.namespace)
                break
            except (ApiException, urllib3.exceptions.HTTPError) as error:
                if isinstance(error, ApiException) and error.status < 500:
                    raise
                if self.stopping.is_set():
                    raise Broken(f"a server that was killed comes back\n  found: {error!r}") from error
                time.sleep(0.1)
        if self.count(name) not in (count - 1, count):
            raise Broken(f"{name} was counted to {count - 1}, perhaps {count}, and is at {self.count(name)}")

    def count(self, name):
        return int(self.objects[name].data["count"])

    def counts(self):
        return {name: self.count(name) for name in self.objects}

    def written(self):
        return sum(self.counts().values())

    def done(self, writes):
        """Whether so many were made; raises what stopped them."""
        if self.failure:
            raise self.failure
        return self.written() >= writes

    def stop(self):
        self.stopping.set()
        self.join()

    def remove(self):
        for name in self.objects:
            self.core.delete_namespaced_config_map(name, self.namespace)
