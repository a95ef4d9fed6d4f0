"""Run `python -m cmd.kubelet`.

Go: cmd/kubelet/kubelet.go
"""

import sys
from typing import NoReturn

from .app.server import exit_process, new_kubelet_command


def main() -> NoReturn:
    """Run the command with the process's arguments, and exit with the command's exit code."""
    exit_process(new_kubelet_command().execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
