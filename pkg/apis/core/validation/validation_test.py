"""Test the validation of pods: valid pods pass, and each error names its field."""

# ruff: noqa: E501  # one case a line reads better than the same wrapped

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import yaml
from pkg.apis.core import v1 as corev1
from pkg.apis.core import validation


def validate(text: str, metadata: str = "", **options: bool) -> list[str]:
    """Return the errors of a pod with this spec, in the form "path: Type: …".

    A spec without containers gets a valid one.
    """
    spec = yaml.to_builtins(text) or {}
    spec.setdefault("containers", [{"name": "ctr", "image": "image"}])
    meta = {"name": "abc", "namespace": "ns", **(yaml.to_builtins(metadata) or {})}
    pod = codec.convert({"metadata": meta, "spec": spec}, v1.Pod)
    corev1.set_object_defaults_pod(pod)
    return [str(e) for e in validation.validate_pod_create(pod, validation.PodValidationOptions(**options))]


def c(text: str) -> str:
    """Return a spec whose only container has these additional fields."""
    return f"{{containers: [{{name: ctr, image: image, {text}}}]}}"


def v(text: str) -> str:
    """Return a spec with one volume of this source."""
    return f"{{volumes: [{{name: vol, {text}}}]}}"


GOOD = [
    "{}",
    c("restartPolicy: Always"),
    c("ports: [{containerPort: 80, name: http}, {containerPort: 80, protocol: UDP, hostPort: 80}]"),
    c("env: [{name: a.b-c, value: x}, {name: D, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['x/y']\"}}}]"),
    c("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}]"),
    c("env: [{name: A, valueFrom: {resourceFieldRef: {resource: requests.hugepages-2Mi}}}]"),
    c("resources: {limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 4Mi, example.com/gpu: 2}}"),
    c("livenessProbe: {tcpSocket: {port: http}}, readinessProbe: {exec: {command: [a]}, successThreshold: 2}"),
    c("startupProbe: {grpc: {port: 99}, terminationGracePeriodSeconds: 5}"),
    c("lifecycle: {preStop: {sleep: {seconds: 30}}, postStart: {httpGet: {port: 80}}}"),
    "{os: {name: linux}, containers: [{name: a, image: i, lifecycle: {stopSignal: SIGRTMIN+3}}]}",
    c("securityContext: {privileged: true, runAsUser: 0, capabilities: {add: [ALL]}, seccompProfile: {type: Unconfined}}"),
    "{initContainers: [{name: a, image: i}, {name: b, image: i, restartPolicy: Always, livenessProbe: {tcpSocket: {port: 1}}}]}",
    "{containers: [{name: a, image: i, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}]}",
    "{hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 80}]}]}",
    "{hostname: web, subdomain: sub, hostAliases: [{ip: 1.2.3.4, hostnames: [a.b]}]}",
    '{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1, "fd00::1"], searches: [., a_b.c., d.e], options: [{name: x}]}}',
    "{securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: '1'}, {name: net/ipv4/tcp_syncookies, value: '1'}]}}",
    "{securityContext: {fsGroup: 1, supplementalGroups: [2], supplementalGroupsPolicy: Strict, appArmorProfile: {type: RuntimeDefault}}}",
    "{tolerations: [{operator: Exists}, {key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 3}]}",
    "{nodeSelector: {a: b}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, minDomains: 2}]}",
    "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}}",
    "{overhead: {cpu: 10m}, activeDeadlineSeconds: 1, priorityClassName: system-node-critical, runtimeClassName: kata}",
    "{readinessGates: [{conditionType: a.b/c}], resources: {limits: {cpu: 1, memory: 1Gi}}}",
    "{hostUsers: false, containers: [{name: a, image: i, securityContext: {procMount: Unmasked}}]}",
    "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /a, subPath: x/y}, {name: v, mountPath: /b, readOnly: true, recursiveReadOnly: Enabled}]}]}",
    "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, env: [{name: X, valueFrom: {fileKeyRef: {volumeName: v, path: p/q, key: K}}}]}]}",
    v("emptyDir: {sizeLimit: 1Gi}"),
    v("hostPath: {path: /var, type: DirectoryOrCreate}"),
    v("secret: {secretName: s, items: [{key: k, path: a/b, mode: 256}]}"),
    v("image: {reference: registry/x:1}"),
    v("nfs: {server: s, path: /p}"),
    v("iscsi: {targetPortal: 1.2.3.4, iqn: 'iqn.2015-02.example.com:test', lun: 1}"),
    v("csi: {driver: csi.example.com}"),
    v("projected: {sources: [{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}, {configMap: {name: m, items: [{key: k, path: b}]}}]}"),
    v("ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}"),
]  # fmt: skip


@pytest.mark.parametrize("spec", GOOD)
def test_good_pods(spec: str) -> None:
    assert validate(spec) == []


BAD: list[tuple[str, str, str]] = [
    # These cases concern containers.
    ("no containers", "{containers: []}", "spec.containers: Required value"),
    ("no name", "{containers: [{image: i}]}", "spec.containers[0].name: Required value"),
    ("bad name", "{containers: [{name: A_b, image: i}]}", 'spec.containers[0].name: Invalid value: "A_b"'),
    ("same name", "{containers: [{name: a, image: i}, {name: a, image: i}]}", 'spec.containers[1].name: Duplicate value: "a"'),
    ("no image", "{containers: [{name: a}]}", "spec.containers[0].image: Required value"),
    ("padded image", "{containers: [{name: a, image: ' i'}]}", "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace"),
    ("pull policy", c("imagePullPolicy: Often"), 'imagePullPolicy: Unsupported value: "Often": supported values: "Always", "IfNotPresent", "Never"'),
    ("message policy", c("terminationMessagePolicy: x"), "terminationMessagePolicy: Unsupported value"),
    ("restart policy", c("restartPolicy: Sometimes"), "spec.containers[0].restartPolicy: Unsupported value"),
    ("rules without policy", c("restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]"), "restartPolicy: Required value: must specify restartPolicy when restart rules are used"),
    ("rule without codes", c("restartPolicy: Never, restartPolicyRules: [{action: Restart}]"), "restartPolicyRules[0].exitCodes: Required value"),
    ("rule operator", c("restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: Is, values: [1]}}]"), "exitCodes.operator: Unsupported value"),
    ("rule action", c("restartPolicy: Never, restartPolicyRules: [{action: Stop, exitCodes: {operator: In, values: [1]}}]"), "restartPolicyRules[0].action: Unsupported value"),
    ("resize policy", c("resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]"), "resizePolicy: Unsupported value"),
    ("ephemeral", "{ephemeralContainers: [{name: e, image: i}]}", "spec.ephemeralContainers: Forbidden: cannot be set on create"),
    # These cases concern init containers.
    ("init name taken", "{initContainers: [{name: ctr, image: i}]}", "spec.initContainers[0].name: Duplicate value"),
    ("init probe", "{initContainers: [{name: a, image: i, livenessProbe: {tcpSocket: {port: 1}}}]}", "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"),
    ("init lifecycle", "{initContainers: [{name: a, image: i, lifecycle: {}}]}", "spec.initContainers[0].lifecycle: Forbidden"),
    ("init restart policy", "{initContainers: [{name: a, image: i, restartPolicy: x}]}", "spec.initContainers[0].restartPolicy: Unsupported value"),
    ("init resize", "{initContainers: [{name: a, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]}", "resizePolicy[0].restartPolicy: Invalid value"),
    # These cases concern ports.
    ("port 0", c("ports: [{name: a}]"), "ports[0].containerPort: Required value"),
    ("port range", c("ports: [{containerPort: 65536}]"), "ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive"),
    ("host port range", c("ports: [{containerPort: 1, hostPort: -1}]"), "ports[0].hostPort: Invalid value: -1"),
    ("port name", c("ports: [{containerPort: 1, name: this-name-is-too-long}]"), "ports[0].name: Invalid value"),
    ("same port name", c("ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]"), "ports[1].name: Duplicate value"),
    ("protocol", c("ports: [{containerPort: 1, protocol: ICMP}]"), 'ports[0].protocol: Unsupported value: "ICMP"'),
    ("same host port", "{containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 5}]}, {name: b, image: i, ports: [{containerPort: 1, hostPort: 5}]}]}", 'spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//5"'),
    ("host network port", "{hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 5}]}]}", "must match `containerPort` when `hostNetwork` is true"),
    # These cases concern environment variables.
    ("env without name", c("env: [{value: x}]"), "env[0].name: Required value"),
    ("env with equals sign", c("env: [{name: a=b}]"), "env[0].name: Invalid value"),
    ("env of nothing", c("env: [{name: a, valueFrom: {}}]"), "env[0].valueFrom: Invalid value: \"\": must specify one of"),
    ("env of two", c("env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: s, key: k}}}]"), "may not have more than one field specified at a time"),
    ("env value twice", c("env: [{name: a, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"), "may not be specified when `value` is not empty"),
    ("field path", c("env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.whatever}}}]"), "fieldRef.fieldPath: Invalid value: \"metadata.whatever\": error converting fieldPath: field label not supported"),
    ("field path for volumes", c("env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]"), "fieldRef.fieldPath: Unsupported value"),
    ("field path subscript", c("env: [{name: a, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a b']\"}}}]"), "fieldRef: Invalid value"),
    ("resource", c("env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.disk}}}]"), "resourceFieldRef.resource: Unsupported value"),
    ("divisor", c("env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 10}}}]"), "resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource"),
    ("secret key", c("env: [{name: a, valueFrom: {secretKeyRef: {name: s, key: 'a b'}}}]"), "secretKeyRef.key: Invalid value"),
    ("config map name", c("env: [{name: a, valueFrom: {configMapKeyRef: {name: '', key: k}}}]"), "configMapKeyRef.name: Invalid value"),
    ("file of no volume", c("env: [{name: a, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: K}}}]"), "fileKeyRef.volumeName: Not found"),
    ("envFrom nothing", c("envFrom: [{}]"), "envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"),
    ("envFrom prefix", c("envFrom: [{prefix: 'a=', secretRef: {name: s}}]"), "envFrom[0].prefix: Invalid value"),
    # These cases concern mounts.
    ("mount of nothing", c("volumeMounts: [{name: none, mountPath: /a}]"), 'volumeMounts[0].name: Not found: "none"'),
    ("mount nowhere", "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v}]}]}", "volumeMounts[0].mountPath: Required value"),
    ("mount twice", "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]}]}", 'volumeMounts[1].mountPath: Invalid value: "/a": must be unique'),
    ("sub path back", "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /a, subPath: a/../b}]}]}", "volumeMounts[0].subPath: Invalid value: \"a/../b\": must not contain '..'"),
    ("sub path absolute", "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /a, subPath: /b}]}]}", "subPath: Invalid value: \"/b\": must be a relative path"),
    ("both sub paths", "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /a, subPath: b, subPathExpr: c}]}]}", "subPathExpr and subPath are mutually exclusive"),
    ("propagation", "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]}]}", "volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers"),
    ("recursive read only", "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /a, recursiveReadOnly: Enabled}]}]}", "volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true"),
    ("device of a directory", "{volumes: [{name: v, emptyDir: {}}], containers: [{name: a, image: i, volumeDevices: [{name: v, devicePath: /a}]}]}", "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"),
    # These cases concern probes and hooks.
    ("probe of nothing", c("livenessProbe: {}"), "livenessProbe: Required value: must specify a handler type"),
    ("probe of two", c("livenessProbe: {tcpSocket: {port: 1}, exec: {command: [a]}}"), "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"),
    ("exec of nothing", c("livenessProbe: {exec: {}}"), "livenessProbe.exec.command: Required value"),
    ("port of probe", c("readinessProbe: {httpGet: {port: 0}}"), "readinessProbe.httpGet.port: Invalid value: 0"),
    ("scheme", c("readinessProbe: {httpGet: {port: 1, scheme: FTP}}"), "readinessProbe.httpGet.scheme: Unsupported value"),
    ("header", c("readinessProbe: {httpGet: {port: 1, httpHeaders: [{name: 'a b', value: x}]}}"), "httpGet.httpHeaders: Invalid value"),
    ("negative delay", c("livenessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: -1}"), "initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0"),
    ("successes of liveness", c("livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}"), "livenessProbe.successThreshold: Invalid value: 2: must be 1"),
    ("grace of readiness", c("readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 1}"), "must not be set for readinessProbes"),
    ("grace of liveness", c("livenessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 0}"), "terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"),
    ("sleep", c("lifecycle: {preStop: {sleep: {seconds: 31}}}"), "preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)"),
    ("stop signal without os", c("lifecycle: {stopSignal: SIGTERM}"), "stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`"),
    ("stop signal", "{os: {name: linux}, containers: [{name: a, image: i, lifecycle: {stopSignal: SIGFOO}}]}", "stopSignal: Unsupported value"),
    # These cases concern resources.
    ("unknown resource", c("resources: {limits: {disk: 1}}"), "resources.limits[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified"),
    ("quota resource", c("resources: {limits: {pods: 1}}"), "must be a standard resource for containers"),
    ("negative", c("resources: {limits: {cpu: -1}}"), "resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"),
    ("part of a device", c("resources: {limits: {example.com/gpu: 500m}}"), "must be an integer"),
    ("more than the limit", c("resources: {limits: {cpu: 1}, requests: {cpu: 2}}"), "resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"),
    ("device request", c("resources: {limits: {example.com/gpu: 2}, requests: {example.com/gpu: 1}}"), "must be equal to example.com/gpu limit of 2"),
    ("device without limit", c("resources: {requests: {example.com/gpu: 1}}"), "resources.limits: Required value: Limit must be set for non overcommitable resources"),
    ("only huge pages", c("resources: {limits: {hugepages-2Mi: 2Mi}}"), "resources: Forbidden: HugePages require cpu or memory"),
    ("part of a page", c("resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}"), "3Mi is not positive integer multiple of hugepages-2Mi"),
    ("unknown claim", c("resources: {claims: [{name: gpu}]}"), "must be one of the names in pod.spec.resourceClaims which is empty"),
    ("claim of nothing", "{resourceClaims: [{name: a}]}", "spec.resourceClaims[0]: Invalid value"),
    ("pod resource", "{resources: {limits: {ephemeral-storage: 1Gi}}}", "spec.resources.limits[ephemeral-storage]: Unsupported value"),
    ("containers over the pod", "{resources: {requests: {cpu: 1}}, containers: [{name: a, image: i, resources: {requests: {cpu: 2}}}]}", "must be greater than or equal to aggregate container requests of 2"),
    ("container limit over the pod", "{resources: {limits: {cpu: 1}, requests: {cpu: 1}}, containers: [{name: a, image: i, resources: {limits: {cpu: 2}, requests: {cpu: 1}}}]}", "must be less than or equal to pod limits of 1"),
    # These cases concern volumes.
    ("no volume name", "{volumes: [{emptyDir: {}}]}", "spec.volumes[0].name: Required value"),
    ("same volume", "{volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]}", 'spec.volumes[1].name: Duplicate value: "a"'),
    ("disk as a second source", v("emptyDir: {}, gcePersistentDisk: {pdName: a}"), "spec.volumes[0].gcePersistentDisk: Forbidden: may not specify more than 1 volume type"),
    ("fields as a second source", v("emptyDir: {}, downwardAPI: {}"), "spec.volumes[0].downwardAPI: Forbidden: may not specify more than 1 volume type"),
    ("image volume of nothing", v("image: {}"), "spec.volumes[0].image.reference: Required value"),
    ("two sources", v("emptyDir: {}, hostPath: {path: /a}"), "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"),
    ("negative size", v("emptyDir: {sizeLimit: -1}"), "emptyDir.sizeLimit: Forbidden"),
    ("host path", v("hostPath: {path: ''}"), "hostPath.path: Required value"),
    ("host path back", v("hostPath: {path: /a/../b}"), "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"),
    ("host path type", v("hostPath: {path: /a, type: Pipe}"), "hostPath.type: Unsupported value"),
    ("nfs path", v("nfs: {server: s, path: p}"), "nfs.path: Invalid value: \"p\": must be an absolute path"),
    ("iscsi name", v("iscsi: {targetPortal: t, iqn: foo, lun: 0}"), "iscsi.iqn: Invalid value: \"foo\": must be valid format starting with iqn, eui, or naa"),
    ("iscsi lun", v("iscsi: {targetPortal: t, iqn: 'iqn.2015-02.example.com:test', lun: 256}"), "iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive"),
    ("secret mode", v("secret: {secretName: s, defaultMode: 512}"), "secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"),
    ("secret item", v("secret: {secretName: s, items: [{key: k, path: ..data}]}"), "items[0].path: Invalid value: \"..data\": must not start with '..'"),
    ("config map", v("configMap: {}"), "configMap.name: Required value"),
    ("fc", v("fc: {targetWWNs: [a], wwids: [b], lun: 1}"), "targetWWNs and wwids can not be specified simultaneously"),
    ("flex option", v("flexVolume: {driver: d, options: {kubernetes.io/a: b}}"), "kubernetes.io and k8s.io namespaces are reserved"),
    ("quobyte", v("quobyte: {registry: nope, volume: v}"), "quobyte.registry: Invalid value"),
    ("csi driver", v("csi: {driver: a_b}"), "csi.driver: Invalid value"),
    ("projected twice", v("projected: {sources: [{secret: {name: s, items: [{key: k, path: p}]}}, {configMap: {name: m, items: [{key: k, path: p}]}}]}"), "projected: Invalid value: \"m\": conflicting duplicate paths"),
    ("projection of two", v("projected: {sources: [{secret: {name: s}, configMap: {name: m}}]}"), "sources[0]: Forbidden: may not specify more than 1 volume type per source"),
    ("token without account", v("projected: {sources: [{serviceAccountToken: {path: t}}]}"), "serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set"),
    ("short token", "{serviceAccountName: a, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 599}}]}}]}", "may not specify a duration less than 10 minutes"),
    ("trust bundle", v("projected: {sources: [{clusterTrustBundle: {path: p}}]}"), "clusterTrustBundle: Required value: either name or signerName must be specified"),
    ("certificate", v("projected: {sources: [{podCertificate: {signerName: a.b/c, keyType: DSA, keyPath: k}}]}"), "podCertificate.keyType: Unsupported value"),
    ("claim", v("persistentVolumeClaim: {claimName: ''}"), "persistentVolumeClaim.claimName: Required value"),
    ("ephemeral claim", v("ephemeral: {volumeClaimTemplate: {spec: {accessModes: [Sometimes], resources: {requests: {storage: 0}}}}}"), "spec.accessModes: Unsupported value"),
    ("template name", v("ephemeral: {volumeClaimTemplate: {metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}"), "metadata.name: Forbidden: cannot be set"),
    ("downward api", v("downwardAPI: {items: [{path: a}]}"), "downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"),
    # These cases concern security contexts.
    ("user id", c("securityContext: {runAsUser: -1}"), "securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"),
    ("escalation", c("securityContext: {privileged: true, allowPrivilegeEscalation: false}"), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"),
    ("proc mount", c("securityContext: {procMount: Unmasked}"), "`hostUsers` must be false to use `Unmasked`"),
    ("seccomp type", c("securityContext: {seccompProfile: {type: x}}"), "seccompProfile.type: Unsupported value"),
    ("seccomp local", c("securityContext: {seccompProfile: {type: Localhost}}"), "seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"),
    ("seccomp not local", "{securityContext: {seccompProfile: {type: Unconfined, localhostProfile: a}}}", "can only be set when seccomp type is Localhost"),
    ("apparmor", "{securityContext: {appArmorProfile: {type: Localhost, localhostProfile: ' a'}}}", "must not be padded with whitespace"),
    ("sysctl", "{securityContext: {sysctls: [{name: 'a b', value: '1'}]}}", "sysctls[0].name: Invalid value"),
    ("sysctl twice", "{securityContext: {sysctls: [{name: a.b, value: '1'}, {name: a.b, value: '1'}]}}", "sysctls[1].name: Duplicate value"),
    ("sysctl of the host", "{hostNetwork: true, securityContext: {sysctls: [{name: net.a, value: '1'}]}}", "may not be specified when 'hostNetwork' is true"),
    ("fs group policy", "{securityContext: {fsGroupChangePolicy: x}}", "fsGroupChangePolicy: Unsupported value"),
    ("shared processes", "{hostPID: true, shareProcessNamespace: true}", "ShareProcessNamespace and HostPID cannot both be enabled"),
    ("host users", "{hostUsers: false, hostNetwork: true}", "spec.hostNetwork: Forbidden: when `hostUsers` is false"),
    ("windows options", "{os: {name: linux}, containers: [{name: a, image: i, securityContext: {windowsOptions: {}}}]}", "windows options cannot be set for a linux pod"),
    # These cases concern the rest of the spec.
    ("pod restart policy", "{restartPolicy: x}", 'spec.restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never"'),
    ("dns policy", "{dnsPolicy: x}", "spec.dnsPolicy: Unsupported value"),
    ("dns none", "{dnsPolicy: None}", "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
    ("dns servers", "{dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}}", "must not have more than 3 nameservers"),
    ("dns server", "{dnsConfig: {nameservers: [a]}}", "spec.dnsConfig.nameservers[0]: Invalid value: \"a\": must be a valid IP address"),
    ("dns search", "{dnsConfig: {searches: ['a b']}}", "spec.dnsConfig.searches[0]: Invalid value"),
    ("host alias", "{hostAliases: [{ip: 999.1.1.1, hostnames: [a]}]}", "spec.hostAliases[0].ip: Invalid value"),
    ("host alias name", "{hostAliases: [{ip: 1.1.1.1, hostnames: [A_]}]}", "spec.hostAliases[0].hostnames[0]: Invalid value"),
    ("hostname", "{hostname: a.b}", "spec.hostname: Invalid value"),
    ("hostname override", "{hostnameOverride: a, hostNetwork: true}", "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true"),
    ("subdomain", "{subdomain: a.b}", "spec.subdomain: Invalid value"),
    ("deadline", "{activeDeadlineSeconds: 0}", "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"),
    ("node selector", "{nodeSelector: {'a b': c}}", "spec.nodeSelector: Invalid value"),
    ("os", "{os: {name: plan9}}", "spec.os: Unsupported value"),
    ("priority class", "{priorityClassName: A}", "spec.priorityClassName: Invalid value"),
    ("preemption", "{preemptionPolicy: x}", "spec.preemptionPolicy: Unsupported value"),
    ("overhead", "{overhead: {disk: 1}}", "spec.overhead.limits[disk]: Invalid value"),
    ("readiness gate", "{readinessGates: [{conditionType: 'a b'}]}", "spec.readinessGates[0].conditionType: Invalid value"),
    ("scheduling gate", "{nodeName: node, schedulingGates: [{name: a}]}", "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"),
    ("toleration key", "{tolerations: [{operator: Equal, value: a}]}", "operator must be Exists when `key` is empty"),
    ("toleration value", "{tolerations: [{key: a, operator: Exists, value: b}]}", "value must be empty when `operator` is 'Exists'"),
    ("toleration operator", "{tolerations: [{key: a, operator: In}]}", 'tolerations[0].operator: Unsupported value: "In"'),
    ("toleration seconds", "{tolerations: [{key: a, operator: Exists, tolerationSeconds: 1}]}", "effect must be 'NoExecute' when `tolerationSeconds` is set"),
    ("toleration comparison", "{tolerations: [{key: a, operator: Gt, value: '1'}]}", 'tolerations[0].operator: Unsupported value: "Gt"'),
    ("node affinity", "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}", "must have at least one node selector term"),
    ("node affinity operator", "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Is}]}]}}}}", "matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator"),
    ("affinity weight", "{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, podAffinityTerm: {topologyKey: z}}]}}}", "weight: Invalid value: 0: must be in the range 1-100"),
    ("affinity topology", "{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}]}}}", "topologyKey: Required value: can not be empty"),
    ("spread", "{topologySpreadConstraints: [{maxSkew: 0, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}", "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero"),
    ("spread twice", "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}", "Duplicate value"),
]  # fmt: skip


def test_windows_options_are_not_looked_into() -> None:
    options = "{gmsaCredentialSpecName: 'A b', runAsUserName: ''}"
    assert validate(f"{{containers: [{{name: a, image: i, securityContext: {{windowsOptions: {options}}}}}]}}") == []


@pytest.mark.parametrize(("spec", "fault"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_pods(spec: str, fault: str) -> None:
    faults = validate(spec)
    assert any(fault in f for f in faults), faults


METADATA = [
    ("name", "{name: A_b}", 'metadata.name: Invalid value: "A_b"'),
    ("no name", "{name: ''}", "metadata.name: Required value: name or generateName is required"),
    ("long name", "{name: " + "a" * 254 + "}", "metadata.name: Invalid value"),
    ("namespace", "{namespace: a.b}", "metadata.namespace: Invalid value"),
    ("label value", "{labels: {a: 'x y'}}", "metadata.labels: Invalid value"),
    ("label key", "{labels: {'a b': x}}", "metadata.labels: Invalid value"),
    ("annotation key", "{annotations: {'a b': x}}", "metadata.annotations: Invalid value"),
    (
        "annotations too large",
        "{annotations: {a: " + "x" * 262144 + "}}",
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    ),
    ("finalizer", "{finalizers: [mine]}", "name is neither a standard finalizer name nor is it fully qualified"),
    ("owner", "{ownerReferences: [{apiVersion: v1, kind: Node, name: '', uid: u}]}", "ownerReferences.name"),
    (
        "mirror",
        "{annotations: {kubernetes.io/config.mirror: x}}",
        "metadata.annotations[kubernetes.io/config.mirror]: Invalid value",
    ),
    ("cost", "{annotations: {controller.kubernetes.io/pod-deletion-cost: '+1'}}", "must be a 32bit integer"),
    (
        "seccomp",
        "{annotations: {seccomp.security.alpha.kubernetes.io/pod: x}}",
        "must be a valid seccomp profile",
    ),
    (
        "apparmor",
        "{annotations: {container.apparmor.security.beta.kubernetes.io/none: unconfined}}",
        "container not found",
    ),
]


@pytest.mark.parametrize(("metadata", "fault"), [m[1:] for m in METADATA], ids=[m[0] for m in METADATA])
def test_bad_metadata(metadata: str, fault: str) -> None:
    faults = validate("{}", metadata)
    assert any(fault in f for f in faults), faults


def test_annotations_and_fields_must_match() -> None:
    spec = "{securityContext: {seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: Unconfined}}}"
    annotations = (
        "{annotations: {seccomp.security.alpha.kubernetes.io/pod: %s,"
        " container.apparmor.security.beta.kubernetes.io/ctr: %s}}"
    )
    assert validate(spec, annotations % ("runtime/default", "unconfined")) == []
    assert validate(spec, annotations % ("unconfined", "runtime/default")) == [
        "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match",
        "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: "
        "apparmor type in annotation and field must match",
    ]


GATES = [
    (c("restartPolicy: Always"), {"allow_container_restart_policy_rules": False}, "restartPolicy: Forbidden"),
    ("{tolerations: [{key: a, operator: Gt, value: x}]}", {"allow_taint_toleration_comparison_operators": True}, "value"),
    ("{hostAliases: [{ip: 010.1.1.1}]}", {"strict_ip_validation": True}, "must not have leading 0s"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "options", "fault"), GATES)
def test_options(spec: str, options: dict[str, bool], fault: str) -> None:
    [got] = validate(spec, "", **options)
    assert fault in got


def test_options_that_allow() -> None:
    assert validate("{hostAliases: [{ip: 010.1.1.1}]}", strict_ip_validation=False) == []
    comparison = "{tolerations: [{key: a, operator: Gt, value: '-12'}]}"
    assert validate(comparison, allow_taint_toleration_comparison_operators=True) == []
    host_network = "{hostUsers: false, hostNetwork: true}"
    assert validate(host_network, allow_user_namespaces_host_network_support=True) == []
