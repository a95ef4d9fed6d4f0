"""Provide helpers for the placement of pods on nodes.

Go: k8s.io/component-helpers/scheduling
"""
