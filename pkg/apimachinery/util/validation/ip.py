"""Validate IP addresses.

Go: k8s.io/apimachinery/pkg/util/validation/ip.go
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from pkg.apimachinery.util.validation import field

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_valid_ip_for_legacy_field(
    path: field.Path | None, value: str, strict_validation: bool, valid_old_ips: Collection[str] = ()
) -> field.ErrorList:
    """Validate an address; without strict_validation allow leading zeros and IPv4-mapped IPv6 addresses too."""
    return field.ErrorList() if value in valid_old_ips else _parse_ip(path, value, strict_validation)[1]


def _parse_ip(path: field.Path | None, value: str, strict: bool) -> tuple[IPAddress | None, field.ErrorList]:
    without_zeros = re.sub(r"(?<![0-9a-fA-F:.])0+(?=[0-9])|(?<=\.)0+(?=[0-9])", "", value)
    try:
        if "%" in value:
            raise ValueError("an address with a zone")
        address = ipaddress.ip_address(without_zeros if ":" not in value else value)
    except ValueError:
        detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        return None, field.ErrorList([field.invalid(path, value, detail)])
    errs = field.ErrorList()
    if strict and ":" not in value and without_zeros != value:
        errs.append(field.invalid(path, value, "must not have leading 0s"))
    if strict and isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        errs.append(field.invalid(path, value, "must not be an IPv4-mapped IPv6 address"))
    return address, errs
