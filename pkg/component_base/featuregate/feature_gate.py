"""Define feature gates: named switches with a stage, a default, and dependencies on each other.

Go: k8s.io/component-base/featuregate/feature_gate.go
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pkg import klog

ALL_ALPHA = "AllAlpha"
ALL_BETA = "AllBeta"


class PreRelease(StrEnum):
    """List the stages of a feature; help texts and metrics show the values."""

    PRE_ALPHA = "PRE-ALPHA"
    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = ""
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """Describe one gate in this kubelet's release."""

    default: bool
    pre_release: PreRelease
    lock_to_default: bool = False


class FeatureGateError(ExceptionGroup[ValueError]):
    """Signal all errors of one attempt to set gates; the text joins them as Go's aggregate does."""

    def __str__(self) -> str:
        texts = [str(err) for err in self.exceptions]
        return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


# A group gate sets every gate of its stage that was not set by name.
_SPECIAL = {ALL_ALPHA: PreRelease.ALPHA, ALL_BETA: PreRelease.BETA}
_GROUP_SPECS = {
    ALL_ALPHA: FeatureSpec(False, PreRelease.ALPHA),
    ALL_BETA: FeatureSpec(False, PreRelease.BETA),
}


class FeatureGate:
    """Hold the known gates, and the values set by flag or file.

    Any thread may call `enabled` without a lock, because writers replace the dict as a whole.
    """

    def __init__(
        self,
        features: Mapping[str, FeatureSpec] | None = None,
        dependencies: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self._known: dict[str, FeatureSpec] = {**_GROUP_SPECS, **(features or {})}
        self._dependencies = {name: tuple(deps) for name, deps in (dependencies or {}).items()}
        # The lock serializes writers of the two dicts below.
        self._lock = threading.Lock()
        self._enabled: dict[str, bool] = {}
        self._enabled_raw: dict[str, bool] = {}

    def enabled(self, key: str) -> bool:
        """Report whether the feature is on; raise KeyError if the gate does not exist."""
        value = self._enabled.get(key)
        return self._known[key].default if value is None else value

    def set(self, value: str) -> None:
        """Set gates from "A=true,B=false"; raise ValueError or FeatureGateError on failure."""
        self.set_from_map(parse_feature_gates(value))

    def set_from_map(self, gates: Mapping[str, bool]) -> None:
        """Set gates in addition to those set before.

        Raise FeatureGateError, and change nothing, if there is any error.
        """
        with self._lock:
            raw = {**self._enabled_raw, **gates}
            enabled, errors = self._resolve(raw)
            if errors:
                raise FeatureGateError("feature gates", errors)
            changed = raw != self._enabled_raw
            self._enabled_raw, self._enabled = raw, enabled
        if changed:
            self._warn_outdated(gates)

    def validate(self) -> list[ValueError]:
        """Return the errors in the current values of the gates."""
        return self._resolve(self._enabled_raw)[1]

    def known_features(self) -> list[str]:
        """Return one help line for each gate that can still be changed, sorted by name."""
        return [
            f"{name}=true|false ({spec.pre_release} - default={str(spec.default).lower()})"
            for name, spec in sorted(self._known.items())
            if spec.pre_release in (PreRelease.ALPHA, PreRelease.BETA)
        ]

    def get_all(self) -> dict[str, FeatureSpec]:
        """Return every known gate with its spec."""
        return dict(self._known)

    def add_metrics(self) -> None:
        """Show on /metrics which gates are on."""
        # The import is lazy because a gate alone needs no metrics.
        from pkg.component_base.metrics.prometheus import feature

        for name, spec in self._known.items():
            feature.record_feature_info(name, spec.pre_release, self.enabled(name))

    def explicitly_set(self, key: str) -> bool:
        """Report whether the gate was set by its own name."""
        return key in self._enabled_raw

    def deep_copy(self) -> FeatureGate:
        """Return a copy that can be changed without changing this gate."""
        copy = FeatureGate()
        copy._known, copy._dependencies = dict(self._known), dict(self._dependencies)
        copy._enabled, copy._enabled_raw = dict(self._enabled), dict(self._enabled_raw)
        return copy

    def reset(self) -> None:
        """Forget all set values; this is for tests."""
        with self._lock:
            self._enabled, self._enabled_raw = {}, {}

    def _resolve(self, raw: Mapping[str, bool]) -> tuple[dict[str, bool], list[ValueError]]:
        """Return the values that result from the given ones, with group gates applied, and all errors."""
        enabled: dict[str, bool] = {}
        errors: list[ValueError] = []
        for name, value in raw.items():
            err = self._check_settable(name, value)
            if err is not None:
                errors.append(err)
            else:
                enabled[name] = value
        for group, stage in _SPECIAL.items():
            if group in raw:
                self._set_unset_gates(enabled, stage, raw[group])
        return enabled, errors or self._check_dependencies(enabled)

    def _check_settable(self, name: str, value: bool) -> ValueError | None:
        spec = self._known.get(name)
        if spec is None:
            return ValueError(f"unrecognized feature gate: {name}")
        if spec.lock_to_default and spec.default != value:
            return ValueError(
                f"cannot set feature gate {name} to {str(value).lower()}, "
                f"feature is locked to {str(spec.default).lower()}"
            )
        return None

    def _set_unset_gates(self, enabled: dict[str, bool], stage: PreRelease, value: bool) -> None:
        for name, spec in self._known.items():
            if spec.pre_release == stage and name not in _SPECIAL:
                enabled.setdefault(name, value)

    def _check_dependencies(self, enabled: Mapping[str, bool]) -> list[ValueError]:
        def is_on(name: str) -> bool:
            return enabled.get(name, self._known[name].default)

        errors = []
        for feature, dependencies in self._dependencies.items():
            disabled = [name for name in dependencies if not is_on(name)]
            if disabled and is_on(feature):
                errors.append(
                    ValueError(
                        f"{feature} is enabled, but depends on features that are disabled: [{' '.join(disabled)}]"
                    )
                )
        return errors

    def _warn_outdated(self, gates: Mapping[str, bool]) -> None:
        for name, value in gates.items():
            stage = self._known[name].pre_release
            if stage in (PreRelease.DEPRECATED, PreRelease.GA):
                word = "deprecated" if stage == PreRelease.DEPRECATED else "GA"
                klog.info_s(
                    f"Warning: setting {word} feature gate. It will be removed in a future release.",
                    featureGate=name,
                    value=value,
                )


def parse_feature_gates(value: str) -> dict[str, bool]:
    """Parse "A=true,B=false"; raise ValueError that names the invalid pair."""
    # The import is lazy because only programs with a command line need the flag package.
    from pkg.component_base.cli.flag import parse_bool

    gates = {}
    for pair in filter(None, value.split(",")):
        name, sep, text = (part.strip() for part in pair.partition("="))
        if not sep:
            raise ValueError(f"missing bool value for {name}")
        try:
            gates[name] = parse_bool(text)
        except ValueError as err:
            raise ValueError(f"invalid value of {name}={text}, err: {err}") from err
    return gates
