"""Load the effective configuration from the command line, and record the source of each value.

The order of precedence, from the lowest to the highest, is: defaults, the --config file, the --config-dir drop-ins,
flags.

Go: cmd/kubelet/app/server.go (NewKubeletCommand, mergeKubeletConfigurations, loadConfigFile,
kubeletConfigFlagPrecedence); the Go kubelet does not record the sources
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme, v1beta1
from kubelet.kubeletconfig import configfiles
from kubelet.kubeletconfig.util import codec
from pkg import features
from pkg.component_base.cli import flag as cliflag
from pkg.component_base.featuregate import ALL_ALPHA, ALL_BETA, PreRelease
from pkg.util import filetree

from . import options

DEFAULT = "default"
LEGACY_DEFAULT = "default without --config"
FEATURE_GATES = "featureGates"

_DROPIN_SUFFIX = ".conf"


class Sources:
    """Record by wire path which file or flag set each field."""

    def __init__(self) -> None:
        self._by_path: dict[str, str] = dict.fromkeys(options.LEGACY_DEFAULTS, LEGACY_DEFAULT)

    def of(self, path: str) -> str:
        """Return the source of a field, or of the nearest enclosing field that was set as a whole."""
        while path:
            if path in self._by_path:
                return self._by_path[path]
            path = path.rpartition(".")[0]
        return DEFAULT

    def was_set(self, path: str) -> bool:
        """Report whether a file or a flag set the field."""
        return self.of(path) not in (DEFAULT, LEGACY_DEFAULT)

    def clear(self) -> None:
        """Reset the source of every field to the defaults."""
        self._by_path.clear()

    def record(self, path: str, source: str) -> None:
        """Record that this source set the field and everything in it."""
        for known in [known for known in self._by_path if known.startswith(f"{path}.")]:
            del self._by_path[known]
        self._by_path[path] = source

    def record_document(self, document: scheme.Document, source: str, prefix: str = "") -> None:
        """Record that this source set every field of the document. A null resets a field to its default."""
        for name, value in document.items():
            path = f"{prefix}{name}"
            if isinstance(value, dict):
                self.record_document(value, source, f"{path}.")
            else:
                self.record(path, DEFAULT if value is None else source)


def gate_source(loaded: Loaded, name: str) -> str:
    """Return the file or flag that set a feature gate. If it set all gates of that stage, add the stage."""
    source = loaded.sources.of(f"{FEATURE_GATES}.{name}")
    groups = {PreRelease.ALPHA: ALL_ALPHA, PreRelease.BETA: ALL_BETA}
    group = groups.get(features.feature_gate.get_all()[name].pre_release)
    if source == DEFAULT and group and features.feature_gate.explicitly_set(group):
        return f"{loaded.sources.of(f'{FEATURE_GATES}.{group}')} ({group})"
    return source


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield, with its path, every value in a document that is not a map, and every empty map."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves(item, f"{path}.{name}" if path else name)
    else:
        yield path, value


@dataclass(slots=True)
class Loaded:
    """Hold the result of loading a command line. `arguments` are the words that are not flags."""

    flag_set: cliflag.FlagSet
    arguments: list[str]
    kubelet_flags: options.KubeletFlags
    global_flags: options.GlobalFlags
    kubelet_configuration: kubeletconfig.KubeletConfiguration
    sources: Sources = field(default_factory=Sources)
    skipped_dropin_files: list[str] = field(default_factory=list)
    passed_over: list[tuple[str, str]] = field(default_factory=list)
    """Each entry holds the fault, an unknown or duplicate field, and the source that contains it."""


def parse_flags(args: list[str], output: TextIO | None = None) -> Loaded:
    """Parse the command line alone. Write warnings about deprecated flags to `output`. Raise FlagError."""
    loaded = Loaded(
        cliflag.FlagSet(output or sys.stderr),
        [],
        options.KubeletFlags(),
        options.GlobalFlags(),
        options.new_kubelet_configuration(),
    )
    loaded.kubelet_flags.add_flags(loaded.flag_set)
    options.add_kubelet_config_flags(loaded.flag_set, loaded.kubelet_configuration)
    options.add_global_flags(loaded.flag_set, loaded.global_flags)
    loaded.flag_set.parse(args)
    loaded.arguments = loaded.flag_set.args
    return loaded


def load(loaded: Loaded, args: list[str]) -> None:
    """Apply the files that the flags name, then the flags again, and set the feature gates.

    Raise ValueError, FeatureGateError or OSError, with the name of the file in the message.
    """
    flags = loaded.kubelet_flags
    features.feature_gate.set_from_map(loaded.kubelet_configuration.feature_gates)
    options.validate_kubelet_flags(flags)
    if flags.kubelet_config_file:
        loaded.kubelet_configuration = _load_base(loaded, flags.kubelet_config_file)
    if flags.kubelet_dropin_config_directory:
        loaded.kubelet_configuration = merge_kubelet_configurations(
            loaded.kubelet_configuration, flags.kubelet_dropin_config_directory, loaded
        )
    if flags.kubelet_config_file or flags.kubelet_dropin_config_directory:
        kubelet_config_flag_precedence(loaded.kubelet_configuration, args)
        features.feature_gate.set_from_map(loaded.kubelet_configuration.feature_gates)
    _record_flags(loaded)


def _load_base(loaded: Loaded, name: str) -> kubeletconfig.KubeletConfiguration:
    try:
        decoded = load_config_file(name)
    except (ValueError, OSError, ExceptionGroup) as err:
        raise ValueError(f"failed to load kubelet config file, path: {name}, error: {err}") from err
    source = f"file {name}"
    loaded.sources.clear()
    loaded.sources.record_document(_effective(decoded.document, decoded.configuration), source)
    loaded.passed_over += [(fault, source) for fault in decoded.faults]
    return decoded.configuration


def load_config_file(name: str) -> codec.Decoded:
    """Return the configuration of a file with defaults, and the fields that the file itself sets."""
    decoded = configfiles.FsLoader(str(Path(name).absolute())).load()
    kc = decoded.configuration
    from kubelet import eviction  # This import loads most of the kubelet, which --help does not need.

    # The defaults of the versioned API contain no hard thresholds, because sensible ones depend on the operating
    # system.
    if decoded.document.get("evictionHard") is None:
        kc.eviction_hard = dict(eviction.DEFAULT_EVICTION_HARD)
    elif kc.merge_default_eviction_settings:
        kc.eviction_hard = {**eviction.DEFAULT_EVICTION_HARD, **kc.eviction_hard}
    return decoded


def merge_kubelet_configurations(
    kc: kubeletconfig.KubeletConfiguration, directory: str, loaded: Loaded
) -> kubeletconfig.KubeletConfiguration:
    """Patch the configuration with each drop-in, in lexical order, and apply the defaults again.

    A drop-in is a JSON merge patch: maps are merged, lists are replaced, and null resets a field to its default.

    DIVERGES (fault of Go): an empty list that the configuration file sets stays empty when there are drop-ins.
    Go: cmd/kubelet/app/server.go, mergeKubeletConfigurations: the Go kubelet loses the empty list in the conversion to
    JSON and applies the default.
    Why: a drop-in that does not mention the field would change its value.
    Test: test/programs/configuration_test.py:test_merging
    """
    document = scheme.to_versioned(kc)
    patches: list[tuple[str, scheme.Document]] = []
    try:
        for path in _walk(directory):
            if path.suffix != _DROPIN_SUFFIX:
                loaded.skipped_dropin_files.append(str(path))
                continue
            dropin, source = _load_dropin_config_file_into_json(path), f"drop-in {path}"
            _merge_patch(document, dropin.document)
            patches.append((source, dropin.document))
            loaded.passed_over += [(fault, source) for fault in dropin.faults]
    except (ValueError, OSError) as err:
        raise ValueError(
            f'failed to merge kubelet configs: failed to walk through kubelet dropin directory "{directory}": {err}'
        ) from err
    v1beta1.set_defaults_kubelet_configuration(document)
    merged = scheme.to_internal(document)
    for source, patch in patches:
        loaded.sources.record_document(_effective(patch, merged), source)
    return merged


def _walk(directory: str) -> list[Path]:
    """Return the files below the directory, in the order of a walk that sorts each directory."""
    files = [
        os.path.join(parent.path(), entry.name)
        for parent, entry in filetree.walk(directory, one_filesystem=False)
        if not entry.is_dir(follow_symlinks=False)
    ]
    return sorted(map(Path, files), key=lambda path: path.parts)


def _load_dropin_config_file_into_json(path: Path) -> scheme.LenientDocument:
    try:
        return configfiles.FsLoader(str(path.absolute())).load_into_json()
    except (ValueError, OSError) as err:
        raise ValueError(f"failed to load kubelet dropin file, path: {path}, error: {err}") from err


def _merge_patch(document: scheme.Document, patch: scheme.Document) -> None:
    """Apply a JSON merge patch to the document in place.

    Go: gopkg.in/evanphx/json-patch.v4/merge.go, MergePatch
    """
    for name, value in patch.items():
        if value is None:
            document.pop(name, None)
        elif isinstance(value, dict):
            if not isinstance(document.get(name), dict):
                document[name] = {}
            _merge_patch(document[name], value)
        else:
            document[name] = value


def _effective(document: scheme.Document, kc: kubeletconfig.KubeletConfiguration) -> scheme.Document:
    """Return the document, with null in place of each zero value that a default replaced."""

    def visit(value: Any, in_force: Any) -> Any:
        if isinstance(value, dict) and isinstance(in_force, dict):
            return {name: visit(item, in_force.get(name)) for name, item in value.items()}
        replaced = value in (0, "", "0s") and not isinstance(value, bool) and value != in_force
        return None if replaced else value

    result: scheme.Document = visit(document, scheme.to_versioned(kc))
    return result


def kubelet_config_flag_precedence(kc: kubeletconfig.KubeletConfiguration, args: list[str]) -> None:
    """Let the flags override the files: parse the arguments again, on top of the merged configuration."""
    fs = cliflag.FlagSet()
    # The first parse has stored these flags. They are registered again only so that the arguments can be parsed.
    options.KubeletFlags().add_flags(fs)
    options.add_global_flags(fs, options.GlobalFlags())
    options.add_kubelet_config_flags(fs, kc)
    original = kc.feature_gates
    fs.parse(args)
    # The flag --feature-gates replaces the whole map, so the gates that only the files set are merged in again.
    kc.feature_gates = {**original, **kc.feature_gates}


def _record_flags(loaded: Loaded) -> None:
    for name, attribute, _, _ in options.CONFIG_FLAGS:
        flag = loaded.flag_set.lookup(name)
        if flag is None or not flag.changed:
            continue
        path = scheme.wire_path(attribute)
        if name == "feature-gates":
            for gate in cliflag.parse_map_bool(flag.value.string()):
                loaded.sources.record(f"{path}.{gate}", f"flag --{name}")
        else:
            loaded.sources.record(path, f"flag --{name}")
