"""Watches of ConfigMaps: that end, that are stopped, that resume, also across a death of the server.

Every write counts one further in the object it writes to, so that an event that was missed, repeated or
out of order shows in the numbers that were seen.
"""

import sys
import threading
import time

import urllib3
from kubernetes import client, watch
from kubernetes.client.rest import ApiException

import cluster
from follower import Follower
from promises import PATIENCE_SECONDS, Broken, equal, eventually, holds
from writer import LABELS, Writer, config_map

# How often the writer must have got through on each side of the server's death.
WRITES = 20
# More than a server can be expected to remember of a namespace.
FORGET_ROUNDS = 20
ROUND_BYTES = 900_000


def run(forgetful=False):
    with cluster.namespace("watch") as namespace:
        watches_end_by_themselves(namespace)
        watches_stop_and_resume(namespace)
        watches_outlive_the_server(namespace, forgetful)
        what_is_forgotten_is_listed_again(namespace)


def listed(namespace, labels=LABELS):
    """Everything there is, and as of when."""
    found = client.CoreV1Api().list_namespaced_config_map(namespace, label_selector=labels)
    return found.items, found.metadata.resource_version


def seen(event):
    """An event in short: its type, its object and how far that had counted."""
    found = event["object"]
    return event["type"], found.metadata.name, int(found.data["count"])


def watches_end_by_themselves(namespace):
    _, version = listed(namespace)
    begun = time.monotonic()
    core = client.CoreV1Api()
    events = list(
        watch.Watch().stream(
            core.list_namespaced_config_map,
            namespace,
            label_selector=LABELS,
            resource_version=version,
            timeout_seconds=2,
        )
    )
    took = time.monotonic() - begun
    equal("a watch of nothing sees nothing", events, [])
    holds("and ends at its time", 1.5 < took < PATIENCE_SECONDS, took)


def watches_stop_and_resume(namespace):
    core = client.CoreV1Api()
    _, version = listed(namespace)

    def change():
        """After a while, so that the watch is there before the first."""
        time.sleep(0.5)
        for name in ["a", "b"]:
            core.create_namespaced_config_map(namespace, config_map(name, 0))
            core.replace_namespaced_config_map(name, namespace, config_map(name, 1))
        core.create_namespaced_config_map(
            namespace, {"metadata": {"name": "not-selected"}, "data": {"count": "0"}}
        )
        core.delete_namespaced_config_map("a", namespace)
        core.patch_namespaced_config_map("b", namespace, {"metadata": {"labels": {"watched": None}}})
        core.patch_namespaced_config_map(
            "b", namespace, {"metadata": {"labels": {"watched": "yes"}}, "data": {"count": "2"}}
        )
        core.delete_namespaced_config_map("b", namespace)

    wanted = [
        ("ADDED", "a", 0),
        ("MODIFIED", "a", 1),
        ("ADDED", "b", 0),
        ("MODIFIED", "b", 1),
        ("DELETED", "a", 1),
        # To who selects by a label, what loses it is gone, and what gets it is new.
        ("DELETED", "b", 1),
        ("ADDED", "b", 2),
        ("DELETED", "b", 2),
    ]
    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    found, stops = [], 0
    # Stopped after every third event and resumed by another watch from the version of the last.
    while len(found) < len(wanted):
        watcher, stopped = watch.Watch(), False
        for event in watcher.stream(
            core.list_namespaced_config_map,
            namespace,
            label_selector=LABELS,
            resource_version=version,
            timeout_seconds=PATIENCE_SECONDS,
        ):
            found.append(seen(event))
            version = event["object"].metadata.resource_version
            equal(f"the watcher knows the version of {found[-1]}", watcher.resource_version, version)
            if len(found) % 3 == 0 or len(found) == len(wanted):
                watcher.stop()
                stopped = True
                stops += 1
        if not stopped:
            break
    changing.join()
    equal("stopped and resumed, a watch misses nothing and repeats nothing", found, wanted)
    equal("it was stopped as often as it was told to", stops, 3)
    again = watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        label_selector=LABELS,
        resource_version=version,
        timeout_seconds=1,
    )
    equal("after the last there is no more", [seen(event) for event in again], [])


def watches_outlive_the_server(namespace, forgetful):
    names = ["x", "y", "z"]
    writer = Writer(namespace, names)
    writer.create()
    _, version = listed(namespace)
    follower = Follower(namespace, version, forgetful)
    follower.start()
    writer.start()
    try:
        eventually("many writes get through", lambda: writer.done(WRITES))
        eventually("and are seen", lambda: follower.counted() >= WRITES)
        print("ready", flush=True)
        said = sys.stdin.readline()
        if not said:
            raise Broken("a line on standard input says that the server may be used again\n  found: its end")
        before = writer.written()
        eventually("after the pause the server answers", is_up)
        eventually("and many more writes get through", lambda: writer.done(before + WRITES))
    finally:
        writer.stop()
    holds("no write was lost that was answered", writer.done(before + WRITES), writer.counts())
    counts = writer.counts()
    writer.remove()
    eventually("the last of each is seen", lambda: follower.ended() == set(names))
    follower.stop()

    wanted = {
        name: [("MODIFIED", count) for count in range(1, counts[name] + 1)] + [("DELETED", counts[name])]
        for name in names
    }
    if forgetful and follower.lists:
        for name, events in follower.seen_of_each().items():
            holds(
                f"who watched and listed again saw changes of {name} in order, and the last",
                events == [event for event in wanted[name] if event in events] and events[-1] == wanted[name][-1],
                (events, wanted[name]),
            )
    else:
        equal(
            "who watched all the time saw each change of each object once, in order",
            follower.seen_of_each(),
            wanted,
        )
    versions = follower.versions
    holds("and no version twice", len(set(versions)) == len(versions), versions)
    if said.strip() == "killed":
        # A watch is always there to be broken off. Whether a write is just under way is chance.
        holds("although the watch was broken off", follower.broken > 0, (writer.broken, follower.broken))

    core = client.CoreV1Api()
    total = sum(len(events) for events in wanted.values())
    watcher, late = watch.Watch(), {name: [] for name in names}
    try:
        for event in watcher.stream(
            core.list_namespaced_config_map,
            namespace,
            label_selector=LABELS,
            resource_version=version,
            timeout_seconds=PATIENCE_SECONDS,
        ):
            kind, name, count = seen(event)
            late[name].append((kind, count))
            if sum(len(events) for events in late.values()) == total:
                watcher.stop()
    except ApiException as error:
        if not forgetful or error.status != 410:
            raise
        holds("who resumes from before it is told that it is forgotten", True)
        return
    equal("who resumes from before it sees the same", late, wanted)


def is_up():
    try:
        client.VersionApi().get_code()
    except (urllib3.exceptions.HTTPError, ApiException):
        return False
    return True


def what_is_forgotten_is_listed_again(namespace):
    core = client.CoreV1Api()
    core.create_namespaced_config_map(namespace, config_map("big", 0))

    def from_the_first(**options):
        """Watches from the first version there ever was; answers the refusal, if it is one."""
        watcher = watch.Watch()
        try:
            for _ in watcher.stream(
                core.list_namespaced_config_map,
                namespace,
                label_selector=LABELS,
                resource_version="1",
                **options,
            ):
                watcher.stop()
        except ApiException as error:
            return error
        return None

    refusal = from_the_first(timeout_seconds=2)
    for count in range(1, FORGET_ROUNDS):
        if refusal:
            break
        core.replace_namespaced_config_map(
            "big", namespace, config_map("big", count, filler="x" * ROUND_BYTES)
        )
        refusal = from_the_first(timeout_seconds=2)
    holds(
        "a version that is too old is refused",
        refusal,
        f"still known after {FORGET_ROUNDS * ROUND_BYTES} bytes",
    )
    equal("as gone", refusal.status, 410)
    holds(
        "in the original's words",
        refusal.reason.startswith("Expired: too old resource version: 1 ("),
        refusal.reason,
    )
    refusal = from_the_first()
    holds("also where the watch tried once more by itself", refusal and refusal.status == 410, refusal)

    items, version = listed(namespace)
    equal("then a list tells what there is", [item.metadata.name for item in items], ["big"])
    count = int(items[0].data["count"]) + 1
    core.replace_namespaced_config_map("big", namespace, config_map("big", count))
    watcher, found = watch.Watch(), []
    for event in watcher.stream(
        core.list_namespaced_config_map,
        namespace,
        label_selector=LABELS,
        resource_version=version,
        timeout_seconds=PATIENCE_SECONDS,
    ):
        found.append(seen(event))
        watcher.stop()
    equal("and a watch from there what comes next", found, [("MODIFIED", "big", count)])
