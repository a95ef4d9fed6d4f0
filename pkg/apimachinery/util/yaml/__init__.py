"""Read YAML and JSON the way Kubernetes does.

Go: k8s.io/apimachinery/pkg/util/yaml, sigs.k8s.io/yaml
"""

from pkg.apimachinery.util.yaml.decoder import YAMLError, documents, dump, to_builtins

__all__ = ["YAMLError", "documents", "dump", "to_builtins"]
