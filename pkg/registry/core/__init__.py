"""Of the core group. Go: pkg/registry/core"""
