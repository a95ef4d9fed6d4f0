"""Helpers that belong to no component. Go: pkg/util"""
