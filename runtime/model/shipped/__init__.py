"""The trained checkpoints that are part of the package: what the embedded stack serves.

`python -m tools.train_tiny` makes them (docs/adr/0013-a-trained-tiny-checkpoint.md).
"""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# The second was trained on from the first.
SHIPPED = {name: FOLDER / name for name in ("tiny-omni-1", "tiny-omni-2")}
