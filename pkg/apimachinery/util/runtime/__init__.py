"""What becomes of exceptions that nobody above handles.

Go: k8s.io/apimachinery/pkg/util/runtime
"""

from pkg.apimachinery.util.runtime.runtime import contain as contain
