"""Go: k8s.io/apiserver/pkg/endpoints/handlers"""
