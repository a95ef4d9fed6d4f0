"""`python -m cmd.kubelet`

Go: cmd/kubelet/kubelet.go
"""

import sys

from .app.server import new_kubelet_command


def main() -> int:
    """Run the command with the process's arguments. Returns the exit code."""
    return new_kubelet_command().execute(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
