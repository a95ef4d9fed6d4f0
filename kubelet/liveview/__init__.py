"""The live view: what the running machine does, drawn as the documentation draws it, and why a pod does not run.

Go: none

- history: what is noted all the time, at next to no cost
- collector: a snapshot of everything, made when somebody looks
- explanation: the one sentence about a pod or the node, with its evidence
- handlers: the page, its JSON and its stream; only a server imports them

The first is all that a kubelet loads that nobody looks at.
"""
