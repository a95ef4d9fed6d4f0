"""Handle exceptions that no caller handles.

Go: k8s.io/apimachinery/pkg/util/runtime
"""

# The implementation is in pkg.golang because the HTTP server, which must not import this package, needs it too.
from pkg.golang.contain import contain as contain
