"""Watches ConfigMaps for as long as it is let: a watch that ends or breaks off is resumed from its last version."""

import threading
import time

import urllib3
from kubernetes import client, watch
from kubernetes.client.rest import ApiException

from writer import LABELS


class Follower(threading.Thread):
    """Never lists: what the server forgot between two watches would be missed, and is a failure.

    Of a server that is known to be forgetful it does list, when it is told that its version is too old.
    """

    def __init__(self, namespace, version, forgetful):
        super().__init__(daemon=True)
        self.core = client.CoreV1Api(client.ApiClient())
        self.namespace = namespace
        self.version = version
        self.forgetful = forgetful
        self.lists = 0
        self.events = []
        self.versions = []
        self.broken = 0
        self.failure = None
        self.watcher = watch.Watch()
        self.stopping = threading.Event()

    def run(self):
        try:
            while not self.stopping.is_set():
                self.follow()
        except Exception as failure:  # told to who asks, who is another thread
            self.failure = failure

    def follow(self):
        try:
            for event in self.watcher.stream(
                self.core.list_namespaced_config_map,
                self.namespace,
                label_selector=LABELS,
                resource_version=self.version,
                # So that a follower that nobody stops ends, and that some end of themselves.
                timeout_seconds=10,
            ):
                found = event["object"]
                self.version = found.metadata.resource_version
                self.versions.append(self.version)
                self.events.append((event["type"], found.metadata.name, int(found.data["count"])))
                if self.stopping.is_set():
                    self.watcher.stop()
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            if isinstance(error, ApiException) and error.status == 410 and self.forgetful:
                self.look()
                return
            if isinstance(error, ApiException) and error.status < 500:
                raise
            self.broken += 1
            time.sleep(0.1)

    def look(self):
        """Takes what is there as what happened."""
        found = self.core.list_namespaced_config_map(self.namespace, label_selector=LABELS)
        self.version = found.metadata.resource_version
        self.lists += 1
        last = {name: (kind, count) for kind, name, count in self.events}
        there = {item.metadata.name: int(item.data["count"]) for item in found.items}
        for name, (kind, count) in last.items():
            if name not in there and kind != "DELETED":
                self.events.append(("DELETED", name, count))
        for name, count in there.items():
            if last.get(name) != ("MODIFIED", count):
                self.events.append(("MODIFIED", name, count))

    def counted(self):
        self.must_live()
        return len(self.events)

    def ended(self):
        """Which objects were seen to go."""
        self.must_live()
        return {name for kind, name, _ in self.events if kind == "DELETED"}

    def seen_of_each(self):
        each = {}
        for kind, name, count in self.events:
            each.setdefault(name, []).append((kind, count))
        return each

    def must_live(self):
        if self.failure:
            raise self.failure

    def stop(self):
        self.stopping.set()
        self.join()
