"""Run `python -m cmd.kubemark`.

Go: cmd/kubemark/hollow-node.go
"""

import sys
from typing import NoReturn

from ..kubelet.app.server import exit_process
from .app.hollow_node import new_hollow_node_command


def main() -> NoReturn:
    """Run the command with the process's arguments, and exit with the command's exit code."""
    exit_process(new_hollow_node_command().execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
