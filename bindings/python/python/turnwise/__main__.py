"""The command ``turnwise``: ``python -m turnwise``."""

from __future__ import annotations

import sys

from turnwise import _native


def main() -> None:
    """Runs the command with the arguments of this process."""
    # The trackers' clients are Python packages.
    if sys.argv[1:2] == ["log"]:
        from turnwise import trackers

        return trackers.main(sys.argv[2:])
    if not hasattr(_native, "main"):
        sys.exit("turnwise: this wheel was built without the program; build it with the feature `program`, which is the default")
    sys.exit(_native.main(["turnwise", *sys.argv[1:]], [sys.executable, "-m", "turnwise"]))


if __name__ == "__main__":
    main()
