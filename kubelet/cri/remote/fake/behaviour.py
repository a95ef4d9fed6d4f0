"""Define what the simulated processes of the fake runtime's containers do."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby

import msgspec

# A pod's annotation `fake.cri/NAME: '{"run_for": 2, "exit_code": 3}'` sets the behaviour of its container NAME.
ANNOTATION_PREFIX = "fake.cri/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Describe the life of a container. Times are seconds on the runtime's clock."""

    # The container exits by itself after this time; with None it runs until it is stopped.
    run_for: float | None = None
    exit_code: int = 0
    oom_killed: bool = False
    ignore_sigterm: bool = False
    stop_after: float = 0.0  # The process takes this time between SIGTERM and its exit.
    sigterm_exit_code: int = 143
    termination_message: str = ""
    create_error: str = ""
    start_error: str = ""
    exec_exit_code: int = 0
    exec_stdout: str = ""
    exec_stderr: str = ""
    exec_for: float = 0.0


def from_json(text: str) -> Behaviour:
    """Parse a behaviour. Raise ValueError, which names unknown and known fields, or the invalid value of a field."""
    known = [f.name for f in fields(Behaviour)]
    try:
        values = msgspec.json.decode(text, type=dict[str, object])
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"unknown field {', '.join(unknown)}; the known fields are {', '.join(known)}")
        return msgspec.convert(values, Behaviour)
    except (ValueError, msgspec.DecodeError) as err:
        raise ValueError(f"fake container behaviour: {err}") from err


@dataclass(slots=True)
class _Rule:
    behaviour: Behaviour
    image: str | None
    command: str | None
    name: str | None
    pod: str | None
    times: int | None
    seen: set[str] = field(default_factory=set)

    def matches(self, image: str, command: str, name: str, pod: str, container_id: str) -> bool:
        if self.times is not None and container_id not in self.seen and len(self.seen) >= self.times:
            return False
        return (
            (self.image is None or self.image in image)
            and (self.command is None or self.command in command)
            and (self.name is None or self.name == name)
            and (self.pod is None or self.pod == pod)
        )


class Behaviours:
    """Decide the behaviour of each container. All methods are thread-safe.

    The pod's annotation comes first, then the newest matching rule, then the container's command.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _rules.
        self._rules: list[_Rule] = []

    def add(
        self,
        behaviour: Behaviour,
        *,
        image: str | None = None,
        command: str | None = None,
        name: str | None = None,
        pod: str | None = None,
        times: int | None = None,
    ) -> None:
        """Add a rule for containers with this image, command, name and pod.

        The container's image and command must contain the texts; its name and its pod's name must be equal to them. The
        rule holds for the first `times` such containers.
        """
        with self._lock:
            self._rules.insert(0, _Rule(behaviour, image, command, name, pod, times))

    def find(
        self,
        *,
        image: str,
        argv: Sequence[str],
        name: str,
        pod: str,
        container_id: str,
        annotations: Mapping[str, str],
    ) -> Behaviour:
        annotation = annotations.get(ANNOTATION_PREFIX + name)
        if annotation is not None:
            return from_json(annotation)
        command = " ".join(argv)
        with self._lock:
            for rule in self._rules:
                if rule.matches(image, command, name, pod, container_id):
                    rule.seen.add(container_id)
                    return rule.behaviour
        return from_command(argv)


_INSTANT = {"true", ":", "echo", "printf", "touch", "mkdir", "cd", "export", "set", "cat", "ls", "test", "["}
_TERMINATION_MESSAGE = re.compile(r"(?:echo|printf)(?: -n)? (.*?)\s*>+\s*/dev/termination-log")


def from_command(argv: Sequence[str]) -> Behaviour:
    """Derive the behaviour from a simple command or shell script. Other programs run until they are stopped."""
    if len(argv) >= 3 and argv[0].rsplit("/", 1)[-1] in ("sh", "bash") and argv[1] == "-c":
        return _from_script(argv[2])
    return _from_script(shlex.join(argv)) if argv else Behaviour()


def _from_script(script: str) -> Behaviour:
    run_for, code, ignore_sigterm = 0.0, 0, False
    message = _TERMINATION_MESSAGE.search(script)
    said = message.group(1).strip("'\"") if message else ""
    for words in _statements(script):
        match words:
            case ["exit", *rest]:
                code = int(rest[0]) if rest and rest[0].isdigit() else code
                break
            case ["sleep", duration] if duration.replace(".", "", 1).isdigit():
                run_for, code = run_for + float(duration), 0
            case ["false"]:
                code = 1
            case ["trap", action, *_]:
                ignore_sigterm = ignore_sigterm or action in ("", ":")
            case [program, *_] if program in _INSTANT:
                code = 0
            case _:
                return Behaviour(ignore_sigterm=ignore_sigterm, termination_message=said)
    return Behaviour(run_for=run_for, exit_code=code, ignore_sigterm=ignore_sigterm, termination_message=said)


def _statements(script: str) -> Iterator[list[str]]:
    """Yield the words of each command; a script that cannot be parsed counts as one unknown program."""
    lexer = shlex.shlex(script.replace("\n", ";"), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:
        tokens = ["?"]
    for separator, group in groupby(tokens, key=lambda token: token in (";", "&&")):
        words = list(group)
        if separator:
            continue
        if words[0] == "exec":
            words = words[1:]
        yield [words[0].rsplit("/", 1)[-1], *words[1:]] if words else [":"]
