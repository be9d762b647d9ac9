"""kvpress on SmolLM2, in a process of its own: on import it patches every attention of its host.

python -m bench.peer_kvpress TEXTS CONTEXT TAIL

prints {"bytes_per_token": x, "nats": [one a text]}.
"""

import json
import subprocess
import sys
import warnings
from typing import Any

import torch

from bench.models import smol
from bench.paged_text import held_out
from bench.stock_cache import Stock, dynamic

SHARE = 0.5  # of the tokens, which it drops


class DoesNotRun(RuntimeError):
    """Its own last words."""


def measured(texts: int, context: int, tail: int) -> dict[str, Any]:
    """What the child process prints. Raises `DoesNotRun`."""
    command = [sys.executable, "-m", "bench.peer_kvpress"]
    command += [str(n) for n in (texts, context, tail)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise DoesNotRun(words[-1] if words else f"it ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from kvpress import KnormPress  # type: ignore[import-not-found]

    texts, context, tail = (int(n) for n in sys.argv[1:])
    arm = Stock(dynamic, KnormPress(SHARE))
    nats = []
    for ids in held_out(smol(), texts, context + tail):
        arm.fill(ids[:context])
        nats.append(float(arm.nats(ids[context:]).mean()))
    print(json.dumps({"bytes_per_token": arm.bytes_per_token(), "nats": nats}))


if __name__ == "__main__":
    main()
