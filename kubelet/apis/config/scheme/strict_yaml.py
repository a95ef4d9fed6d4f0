"""YAML or JSON to plain data, refusing what others silently swallow: duplicate keys, several documents.

Go: sigs.k8s.io/yaml (UnmarshalStrict)
"""

from __future__ import annotations

import datetime
from typing import Any


def load(data: bytes) -> tuple[Any, list[str]]:
    """The document and the paths of its duplicate keys. Raises ValueError if it is not one YAML document."""
    # Only needed when there is a file to read, and slow to import.
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(data)
        node = loader.get_single_node()
        duplicates: list[str] = []
        value = _construct(loader, node, "", duplicates) if node is not None else None
    except (yaml.YAMLError, UnicodeDecodeError) as err:
        raise ValueError("yaml: " + " ".join(str(err).split())) from err
    return value, duplicates


def _construct(loader: Any, node: Any, path: str, duplicates: list[str]) -> Any:
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [_construct(loader, item, f"{path}[{i}]", duplicates) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _construct_mapping(loader, node, path, duplicates)
    value = loader.construct_object(node)
    # JSON has no dates: what looks like one is text, as it is for every Kubernetes component.
    return node.value if isinstance(value, datetime.date) else value


def _construct_mapping(loader: Any, node: Any, path: str, duplicates: list[str]) -> dict[str, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = str(key_node.value)
        if key in seen:
            duplicates.append(f"{path}.{key}" if path else key)
        seen.add(key)
    # Merge keys (<<) after the check: what they bring may be overridden.
    loader.flatten_mapping(node)
    result = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        result[key] = _construct(loader, value_node, f"{path}.{key}" if path else key, duplicates)
    return result
