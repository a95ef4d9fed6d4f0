"""Define the filters of the node's admission, each with its name and its message.

Go: pkg/scheduler/framework/plugins
"""
