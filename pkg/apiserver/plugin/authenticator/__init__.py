"""Go: k8s.io/apiserver/plugin/pkg/authenticator"""
