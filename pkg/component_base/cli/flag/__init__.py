"""Parse command-line flags with the semantics that Kubernetes' components share.

Go: k8s.io/component-base/cli/flag, github.com/spf13/pflag
"""

from pkg.component_base.cli.flag.ciphersuites_flag import check_tls_cipher_suites, check_tls_version
from pkg.component_base.cli.flag.duration import format_duration, parse_duration
from pkg.component_base.cli.flag.flag_set import Flag, FlagError, FlagSet
from pkg.component_base.cli.flag.values import (
    Collection,
    Ref,
    Scalar,
    Value,
    bool_value,
    configuration_map_value,
    duration_value,
    format_map,
    int32_value,
    int64_value,
    ip_value,
    level_value,
    map_bool_value,
    map_value,
    multimap_value,
    parse_bool,
    parse_int,
    parse_map_bool,
    string_slice_value,
    string_value,
)

__all__ = [
    "Collection",
    "Flag",
    "FlagError",
    "FlagSet",
    "Ref",
    "Scalar",
    "Value",
    "bool_value",
    "check_tls_cipher_suites",
    "check_tls_version",
    "configuration_map_value",
    "duration_value",
    "format_duration",
    "format_map",
    "int32_value",
    "int64_value",
    "ip_value",
    "level_value",
    "map_bool_value",
    "map_value",
    "multimap_value",
    "parse_bool",
    "parse_duration",
    "parse_int",
    "parse_map_bool",
    "string_slice_value",
    "string_value",
]
