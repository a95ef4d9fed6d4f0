"""Make and show resource quantities in tests."""

from __future__ import annotations

from collections.abc import Mapping

from pkg.apimachinery.api import resource


def quantities(**texts: str) -> dict[str, resource.Quantity]:
    """Return quantities by resource name: quantities(memory="1Gi", ephemeral_storage="1Gi").

    Resources with an empty text are left out.
    """
    return {name.replace("_", "-"): resource.must_parse(text) for name, text in texts.items() if text}


def texts(resources: Mapping[str, resource.Quantity]) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in resources.items()}
