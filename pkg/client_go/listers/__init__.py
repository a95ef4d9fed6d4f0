"""Read objects from the stores of informers, without requests to the API server.

Go: k8s.io/client-go/listers
"""
