"""What becomes of exceptions that nobody above handles.

Go: k8s.io/apimachinery/pkg/util/runtime
"""

# The HTTP server needs it too, and stands below this package.
from pkg.golang.contain import contain as contain
