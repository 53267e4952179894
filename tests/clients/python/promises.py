"""What must be so: each is printed once it was found to be, and the first that is not ends the program."""

import json
import time

from kubernetes.client.rest import ApiException

# How long something that is not immediate may take, on a machine that is busy with other things.
PATIENCE_SECONDS = 60


class Broken(Exception):
    """Something is not so; the message says what, and what was found instead."""


def holds(what, so, found=None):
    """`what` is so."""
    if not so:
        raise Broken(what if found is None else f"{what}\n  found: {found!r}")
    print(f"ok: {what}", flush=True)


def equal(what, found, wanted):
    """`what` is `wanted`."""
    if found != wanted:
        raise Broken(f"{what}\n  wanted: {wanted!r}\n  found:  {found!r}")
    print(f"ok: {what}", flush=True)


def refused(what, code, reason, call, saying=""):
    """`call` is answered with this code, this reason and a message that contains `saying`; answers the Status."""
    try:
        answer = call()
    except ApiException as error:
        status = status_of(what, error)
        found = (error.status, status.get("code"), status.get("reason"))
        if found != (code, code, reason) or saying not in status.get("message", ""):
            wanted = (code, code, reason, saying)
            raise Broken(f"{what}\n  wanted: {wanted!r}\n  found:  {error.status} {status!r}") from error
        print(f"ok: {what}: {code} {reason}", flush=True)
        return status
    raise Broken(f"{what}\n  wanted: {code} {reason}\n  found it done: {answer!r}")


def raises(what, error, call):
    """`call` fails with this class of error."""
    try:
        answer = call()
    except error:
        print(f"ok: {what} ({error.__name__})", flush=True)
        return
    raise Broken(f"{what}\n  wanted: {error.__name__}\n  found it done: {answer!r}")


def status_of(what, error):
    """The Status object that every refusal must carry."""
    try:
        status = json.loads(error.body)
    except (TypeError, ValueError) as why:
        raise Broken(f"{what}: the answer {error.status} is no JSON: {error.body!r}") from why
    if (status.get("kind"), status.get("apiVersion"), status.get("status")) != ("Status", "v1", "Failure"):
        raise Broken(f"{what}: the answer {error.status} is no Status: {status!r}")
    return status


def eventually(what, look):
    """Asks `look` until it answers something; answers that."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = look()
        if found:
            print(f"ok: {what}", flush=True)
            return found
        if time.monotonic() > end:
            raise Broken(f"{what}: not within {PATIENCE_SECONDS} s")
        time.sleep(0.1)


def is_gone(read):
    """Whether `read` is answered with NotFound."""
    try:
        read()
    except ApiException as error:
        if error.status == 404:
            return True
        raise
    return False
