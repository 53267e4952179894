"""Uses a cluster through the official Python client and says what it found to be so.

    main.py dynamic|watch [forgetful]|typed|confidences

KUBECONFIG names the cluster, as somebody who may do everything. Each subcommand works in a namespace of
its own and removes it. It prints one line for each thing that was found to be so. At the first that is not
it says which on standard error and exits with 1.

`watch` also prints a line `ready` and reads one from standard input: in between the server may be killed
and started again on its data. If that line is `killed`, the program must have noticed. With `forgetful` it takes
a server that forgets its history when it restarts, as the original's does: who watched then lists again, and
of what happened meanwhile sees the outcome alone.

`confidences` tells each secret that it used on a line `secret: ...`, for who looks whether the server kept it to
itself. It needs KubeVirt's kinds.
"""

import os
import sys
import tempfile
import traceback

# The sources' directory stays as it was checked out.
sys.dont_write_bytecode = True

import urllib3  # noqa: E402
from kubernetes import config  # noqa: E402
from kubernetes.client.rest import ApiException  # noqa: E402

import confidences  # noqa: E402
import dynamic_client  # noqa: E402
import typed_clients  # noqa: E402
import watching  # noqa: E402
from promises import Broken  # noqa: E402

SUBCOMMANDS = {
    "dynamic": dynamic_client.run,
    "watch": watching.run,
    "typed": typed_clients.run,
    "confidences": confidences.run,
}


def main(arguments):
    name, *options = arguments or [""]
    if name not in SUBCOMMANDS or options not in ([], ["forgetful"]) or (options and name != "watch"):
        print(f"usage: main.py {'|'.join(SUBCOMMANDS)} [forgetful]", file=sys.stderr)
        return 2
    if not os.environ.get("KUBECONFIG"):
        print("KUBECONFIG must name the cluster; none is taken by default", file=sys.stderr)
        return 2
    config.load_kube_config()
    # The dynamic client remembers discovery in a file named for the address of the server alone: one that
    # another cluster left at this address must not be believed.
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        try:
            SUBCOMMANDS[name](**dict.fromkeys(options, True))
        except Broken as broken:
            print(f"NOT SO: {broken}", file=sys.stderr)
            return 1
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            print(
                f"NOT SO: what is asked at {whereabouts(error)} is done\n  found: {account(error)}",
                file=sys.stderr,
            )
            return 1
    return 0


def whereabouts(error):
    """The innermost line of this program, and not of the client, that led to `error`."""
    here = os.path.dirname(os.path.abspath(__file__))
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.dirname(frame.filename) == here
    ]
    return f"{os.path.basename(ours[-1].filename)}:{ours[-1].lineno} `{ours[-1].line}`"


def account(error):
    return f"{error.status} {error.body!r}" if isinstance(error, ApiException) else repr(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
