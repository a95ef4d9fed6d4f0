"""Mount with mount(8), so that its helpers and its handling of /etc/mtab apply.

This module decides from mountinfo whether a path is a mount point, because a server that does not respond blocks every
process that accesses the mount itself.

Go: k8s.io/mount-utils/mount.go, mount_linux.go
"""

from __future__ import annotations

import enum
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pkg import klog
from pkg.mount_utils.mount_helper_unix import (
    MOUNT_INFO,
    MountInfo,
    is_corrupted_mnt,
    mount_points,
    parse_mount_info,
    path_exists,
    without_links_above,
)
from pkg.util import exec as utilexec
from pkg.util import procfs

# In logs and messages, this text replaces an option that may be a password.
SENSITIVE_OPTIONS_REMOVED = "<masked>"

_MOUNT_COMMAND = "mount"
# These are exit codes of fsck: it corrected errors, or it left errors uncorrected.
_FSCK_ERRORS_CORRECTED = 1
_FSCK_ERRORS_UNCORRECTED = 4
# umount prints this text for a target that is not a mount point.
_NOT_MOUNTED = "not mounted"
# blkid exits with this code for a device on which it recognises nothing, or which it cannot open or read.
_BLKID_NOTHING_FOUND = 2
# This many bytes at the start of a device hold the superblocks of file systems.
_SUPERBLOCKS_LENGTH = 128 << 10
# The kernel lists the file system types that it knows in this file.
_FILE_SYSTEMS = "/proc/filesystems"
# The pattern matches one type without a subtype.
_FSTYPE = re.compile(r"[A-Za-z0-9_-]+")
# The helpers of other file systems may leave a daemon behind, which systemd would kill when it stops the kubelet.
_NEVER_A_DAEMON = frozenset({"", "tmpfs", "hugetlbfs", "ext3", "ext4", "xfs", "btrfs"})
# A bind mount inherits these flags of its file system, and must keep them when it is remounted with other options.
_KEPT_FLAGS = {
    os.ST_RDONLY: "ro",
    os.ST_NODEV: "nodev",
    os.ST_NOEXEC: "noexec",
    os.ST_NOSUID: "nosuid",
    os.ST_NOATIME: "noatime",
    os.ST_RELATIME: "relatime",
    os.ST_NODIRATIME: "nodiratime",
}


@dataclass(frozen=True, slots=True)
class MountPoint:
    """Describe one mount. Its options may contain passwords: never log them."""

    device: str
    path: str
    type: str
    options: tuple[str, ...]


class MountErrorType(enum.StrEnum):
    """Name the reason why a device could not be mounted."""

    FILESYSTEM_MISMATCH = "FilesystemMismatch"
    HAS_FILESYSTEM_ERRORS = "HasFilesystemErrors"
    UNFORMATTED_READ_ONLY = "UnformattedReadOnly"
    FORMAT_FAILED = "FormatFailed"
    GET_DISK_FORMAT_FAILED = "GetDiskFormatFailed"
    UNKNOWN_MOUNT_ERROR = "UnknownMountError"


class MountError(OSError):
    """Signal that a device could not be formatted or mounted."""

    def __init__(self, type: MountErrorType, message: str) -> None:
        super().__init__(message)
        self.type = type


class Interface(Protocol):
    """Define operations on the mounts of this machine. All methods raise OSError, and are thread-safe.

    Mounting and unmounting may block forever when a server does not respond. The other methods do not.
    """

    def mount(self, source: str, target: str, fstype: str, options: list[str]) -> None:
        """Mount with options of mount(8).

        Options must not be secret, because they are logged. source and fstype may be "".
        """
        ...

    def mount_sensitive(
        self, source: str, target: str, fstype: str, options: list[str], sensitive_options: list[str]
    ) -> None:
        """Mount with additional options that never appear in a log or message."""
        ...

    def mount_sensitive_without_systemd(
        self, source: str, target: str, fstype: str, options: list[str], sensitive_options: list[str]
    ) -> None: ...

    def mount_sensitive_without_systemd_with_mount_flags(
        self,
        source: str,
        target: str,
        fstype: str,
        options: list[str],
        sensitive_options: list[str],
        mount_flags: list[str],
    ) -> None:
        """Mount like mount_sensitive, with flags for mount(8) that are not mount options.

        The helpers never run in a systemd scope.
        """
        ...

    def unmount(self, target: str) -> None: ...

    def is_likely_not_mount_point(self, path: str) -> bool:
        """Report whether the path is not a mount point. Raise FileNotFoundError."""
        ...

    def can_safely_skip_mount_point_check(self) -> bool:
        """Report whether unmounting a path that is not a mount point succeeds."""
        ...

    def is_mount_point(self, path: str) -> bool:
        """Report whether the path is a mount point, also for bind mounts.

        Links are followed. Raise FileNotFoundError.
        """
        ...

    def get_mount_refs(self, path: str) -> list[str]:
        """Return the other mount points of the same mount; for a directory, the mount points that it is bound to."""
        ...

    def list(self) -> list[MountPoint]: ...


class MounterForceUnmounter(Interface, Protocol):
    """Define a mounter that can stop waiting for a server that does not respond."""

    def unmount_with_force(self, target: str, umount_timeout: float) -> None:
        """Unmount, with force if that takes longer than umount_timeout seconds."""
        ...


class Mounter:
    """Mount with the tools of this machine. With `try_systemd`, helpers that start a daemon run in their own scope."""

    def __init__(self, try_systemd: bool = True) -> None:
        self._try_systemd = try_systemd
        # These fields are None until the value is needed.
        self._with_systemd: bool | None = None
        self._with_safe_not_mounted_behavior: bool | None = None

    def has_systemd(self) -> bool:
        """Report whether systemd-run works on this machine."""
        if self._with_systemd is None:
            self._with_systemd = self._try_systemd and detect_systemd()
        return self._with_systemd

    def mount(self, source: str, target: str, fstype: str, options: list[str]) -> None:
        self.mount_sensitive(source, target, fstype, options, [])

    def mount_sensitive(
        self, source: str, target: str, fstype: str, options: list[str], sensitive_options: list[str]
    ) -> None:
        self._mount(source, target, fstype, options, sensitive_options, [], self._try_systemd)

    def mount_sensitive_without_systemd(
        self, source: str, target: str, fstype: str, options: list[str], sensitive_options: list[str]
    ) -> None:
        self._mount(source, target, fstype, options, sensitive_options, [], False)

    def mount_sensitive_without_systemd_with_mount_flags(
        self,
        source: str,
        target: str,
        fstype: str,
        options: list[str],
        sensitive_options: list[str],
        mount_flags: list[str],
    ) -> None:
        self._mount(source, target, fstype, options, sensitive_options, mount_flags, False)

    def _mount(
        self,
        source: str,
        target: str,
        fstype: str,
        options: list[str],
        sensitive_options: list[str],
        mount_flags: list[str],
        systemd: bool,
    ) -> None:
        bind = make_bind_opts_sensitive(options, sensitive_options)
        if bind is None:
            self.do_mount(source, target, fstype, options, sensitive_options, mount_flags, systemd)
            return
        self.do_mount(source, target, fstype, bind.options, [], mount_flags, False)
        # Without options of its own, a bind mount already has the options of its source, and a remount is unnecessary.
        if bind.remount_options != ["bind", "remount"] or bind.remount_sensitive_options:
            remount_options = bind.remount_options + get_bind_mount_options(source)
            self.do_mount(source, target, fstype, remount_options, bind.remount_sensitive_options, mount_flags, False)

    def do_mount(
        self,
        source: str,
        target: str,
        fstype: str,
        options: list[str],
        sensitive_options: list[str],
        mount_flags: list[str],
        systemd: bool,
    ) -> None:
        """Run mount(8) once. Raise OSError with its output."""
        command = _MOUNT_COMMAND
        arguments, for_log = make_mount_args_sensitive_with_mount_flags(
            source, target, fstype, options, sensitive_options, mount_flags
        )
        # Go requests a systemd scope for each mount, but only helpers that leave a daemon behind need one.
        if systemd and fstype not in _NEVER_A_DAEMON and self.has_systemd():
            command, arguments, for_log = add_systemd_scope_sensitive(
                "systemd-run", target, command, arguments, for_log
            )
        klog.v(4).info_s("Mounting", command=command, arguments=for_log)
        try:
            utilexec.Executor().run([command, *arguments])
        except utilexec.CodeExitError as err:
            output = err.output.decode(errors="replace")
            klog.error_s(err, "Mount failed", command=command, arguments=for_log, output=output)
            raise OSError(
                f"mount failed: {err}\nMounting command: {command}\nMounting arguments: {for_log}\nOutput: {output}"
            ) from err

    def unmount(self, target: str) -> None:
        klog.v(4).info_s("Unmounting", path=target)
        _umount(target, [], None, self.can_safely_skip_mount_point_check())

    def unmount_with_force(self, target: str, umount_timeout: float) -> None:
        try:
            try_unmount(target, self.can_safely_skip_mount_point_check(), umount_timeout)
        except TimeoutError:
            klog.v(2).info_s("Timed out waiting for unmount, trying with -f", path=target)
            force_umount(target, self.can_safely_skip_mount_point_check())

    def is_likely_not_mount_point(self, path: str) -> bool:
        return not self.is_mount_point(path)

    def can_safely_skip_mount_point_check(self) -> bool:
        if self._with_safe_not_mounted_behavior is None:
            try:
                self._with_safe_not_mounted_behavior = detect_safe_not_mounted_behavior()
            except OSError as err:
                # Unmounting must work even while the disk of the temporary directory is full or no descriptor is free.
                klog.error_s(err, "Cannot detect how umount behaves, assuming unsafe 'not mounted' behavior for now")
                return False
        return self._with_safe_not_mounted_behavior

    def is_mount_point(self, path: str) -> bool:
        points = mount_points(MOUNT_INFO)
        if without_links_above(path) in points:
            return True
        os.lstat(path)
        return os.path.realpath(path) in points

    def get_mount_refs(self, path: str) -> list[str]:
        try:
            if not self.is_mount_point(path) and not path_exists(path):
                return []
        except FileNotFoundError:
            return []
        except OSError as err:
            if not is_corrupted_mnt(err):
                raise OSError(f"error checking path {path}: {err}") from err
            klog.warning_s("Found corrupted mount, treating as unmounted path", path=path)
            return []
        real = without_links_above(path)
        infos = parse_mount_info(MOUNT_INFO)
        if not any(info.mount_point == real for info in infos):
            real = os.path.realpath(path)
        return search_mount_points(real, infos)

    def list(self) -> list[MountPoint]:
        return list_proc_mounts(MOUNT_INFO)


def get_bind_mount_options(path: str, statvfs: Callable[[str], os.statvfs_result] = os.statvfs) -> list[str]:
    """Return the options of the mount below `path` that a bind mount of `path` must keep."""
    try:
        flags = statvfs(path).f_flag
    except OSError as err:
        raise OSError(err.errno, f"statfs {path}: {err.strerror}") from err
    return [name for flag, name in _KEPT_FLAGS.items() if flags & flag]


@dataclass(frozen=True, slots=True)
class BindOptions:
    """Hold the options for creating a bind mount, and the common and the secret options for remounting it."""

    options: list[str]
    remount_options: list[str]
    remount_sensitive_options: list[str]


def make_bind_opts_sensitive(options: Sequence[str], sensitive_options: Sequence[str]) -> BindOptions | None:
    """Return the options for a bind mount, or None if the options do not request one.

    The kernel ignores most options when it creates a bind mount, so a remount has to set them. The remount needs "bind"
    too: without it, the whole file system would change, or be busy because another process has it open. "_netdev" must
    be repeated, because only mount(8) knows it and a bind mount does not inherit it.
    """
    if "bind" not in {*options, *sensitive_options}:
        return None
    bind_options = ["bind", "_netdev"] if check_for_net_dev(options, sensitive_options) else ["bind"]
    remount_options = ["bind", "remount", *(o for o in options if o not in ("bind", "remount"))]
    remount_sensitive = [o for o in sensitive_options if o not in ("bind", "remount")]
    return BindOptions(bind_options, remount_options, remount_sensitive)


def check_for_net_dev(options: Sequence[str], sensitive_options: Sequence[str]) -> bool:
    """Report whether an option requires the network. Only mount(8) knows this option, not the kernel."""
    return "_netdev" in options or "_netdev" in sensitive_options


def path_within_base(full_path: str, base_path: str) -> bool:
    """Report whether full_path is at or below base_path, without following links."""
    if os.path.isabs(full_path) != os.path.isabs(base_path):
        return False
    return not starts_with_backstep(os.path.relpath(full_path, base_path))


def starts_with_backstep(relative: str) -> bool:
    return relative == ".." or relative.startswith("../")


def sanitized_options_for_logging(options: Sequence[str], sensitive_options: Sequence[str]) -> str:
    """Return the options as mount(8) gets them, with the secret ones masked."""
    return ",".join([*options, *(SENSITIVE_OPTIONS_REMOVED for _ in sensitive_options)])


def make_mount_args_sensitive_with_mount_flags(
    source: str,
    target: str,
    fstype: str,
    options: Sequence[str],
    sensitive_options: Sequence[str],
    mount_flags: Sequence[str],
) -> tuple[list[str], str]:
    """Return the arguments of mount(8), and their form for the log. mount_flags are not mount options.

    DIVERGES (safer): in this kubelet, mount(8) never interprets a source that begins with a dash as an option.
    Go: k8s.io/mount-utils/mount_linux.go, MakeMountArgsSensitiveWithMountFlags: in the Go kubelet, mount(8) interprets
    such a source as an option.
    Why: with "--fstab=FILE:/FILE" as the server and the path of an NFS volume, mount(8) would read source and options
    from a file that the pod has written.
    Test: mount_test.py:test_source_is_never_an_option_of_mount
    """
    before = [*mount_flags, *(["-t", fstype] if fstype else [])]
    after = ["--", source, target] if source else ["--", target]
    if not options and not sensitive_options:
        return [*before, *after], " ".join([*before, *after])
    for_log = [*before, "-o", sanitized_options_for_logging(options, sensitive_options), *after]
    return [*before, "-o", ",".join([*options, *sensitive_options]), *after], " ".join(for_log)


def add_systemd_scope_sensitive(
    systemd_run_path: str, mount_name: str, command: str, arguments: Sequence[str], for_log: str
) -> tuple[str, list[str], str]:
    """Return the command and arguments that run the command in a systemd scope, and the arguments for the log.

    The scope outlives the kubelet's service, so a FUSE daemon in the scope survives a restart of the kubelet.
    """
    scope = [f"--description=Kubernetes transient mount for {mount_name}", "--scope", "--", command]
    return systemd_run_path, [*scope, *arguments], " ".join([*scope, for_log])


def detect_systemd(executor: utilexec.Interface | None = None) -> bool:
    """Report whether systemd runs this machine, and is not merely installed, as in a container with a systemd image."""
    if shutil.which("systemd-run") is None:
        klog.v(2).info_s("Detected OS without systemd")
        return False
    try:
        (executor or utilexec.Executor()).run(
            ["systemd-run", "--description=Kubernetes systemd probe", "--scope", "true"]
        )
    except utilexec.CodeExitError as err:
        klog.v(2).info_s("Cannot run systemd-run, assuming non-systemd OS", err=err, output=err.output)
        return False
    klog.v(2).info_s("Detected OS with systemd")
    return True


def detect_safe_not_mounted_behavior() -> bool:
    """Report whether umount(8) says "not mounted" for a path that is not a mount point.

    Raise OSError if this cannot be tested.
    """
    return detect_safe_not_mounted_behavior_with_exec(utilexec.Executor())


def detect_safe_not_mounted_behavior_with_exec(executor: utilexec.Interface) -> bool:
    with tempfile.TemporaryDirectory(prefix="kubelet-detect-safe-umount") as path:
        try:
            executor.run(["umount", path])
        except utilexec.CodeExitError as err:
            if _NOT_MOUNTED in err.output.decode(errors="replace"):
                klog.v(4).info_s("Detected umount with safe 'not mounted' behavior")
                return True
            klog.v(4).info_s("umount failed for another reason", path=path, err=err, output=err.output)
    klog.v(4).info_s("Detected umount with unsafe 'not mounted' behavior")
    return False


def try_unmount(target: str, with_safe_not_mounted_behavior: bool, unmount_timeout: float) -> None:
    """Unmount within `unmount_timeout` seconds. Raise TimeoutError or OSError."""
    klog.v(4).info_s("Unmounting", path=target)
    try:
        _umount(target, [], unmount_timeout, with_safe_not_mounted_behavior)
    except utilexec.CommandTimedOutError as err:
        raise TimeoutError(str(err)) from err


def force_umount(target: str, with_safe_not_mounted_behavior: bool) -> None:
    """Unmount without contacting the server, which does not respond."""
    _umount(target, ["-f"], None, with_safe_not_mounted_behavior)


def _umount(target: str, flags: list[str], timeout: float | None, safe_not_mounted: bool) -> None:
    path = without_links_above(target)
    if path in mount_points(MOUNT_INFO):
        # busybox's umount does not know the flag's long name, --no-canonicalize.
        # DIVERGES (safer): in this kubelet, umount(8) does not access the mount before it unmounts.
        # Go: k8s.io/mount-utils/mount_linux.go, (*Mounter).Unmount: in the Go kubelet, umount(8) checks whether the
        # path is a link.
        # Why: that check waits for the server of the mount, forever if the server is gone.
        # Test: mount_test.py:test_mounts_are_unmounted_without_looking_at_them
        target, flags = path, [*flags, "-c"]
    try:
        utilexec.Executor().run(["umount", *flags, target], timeout)
    except utilexec.CodeExitError as err:
        check_umount_error(target, err, safe_not_mounted)


def check_umount_error(target: str, err: utilexec.CodeExitError, with_safe_not_mounted_behavior: bool) -> None:
    """Raise OSError for a failed umount, unless it failed because nothing was mounted."""
    output = err.output.decode(errors="replace")
    if with_safe_not_mounted_behavior and _NOT_MOUNTED in output:
        klog.v(4).info_s("ignoring 'not mounted' error", path=target)
        return
    raise OSError(f"unmount failed: {err}\nUnmounting arguments: {target}\nOutput: {output}") from err


def list_proc_mounts(mount_info_path: str) -> list[MountPoint]:
    """Return all mounts of a mountinfo file, in its order. Raise OSError or ValueError."""
    return parse_proc_mounts(parse_mount_info(mount_info_path))


def parse_proc_mounts(infos: Iterable[MountInfo]) -> list[MountPoint]:
    """Return the mounts in the form of /proc/mounts, which merges the options of the mount and of the file system."""
    points = []
    for info in infos:
        read_only = "ro" in info.mount_options or "ro" in info.super_options
        others = [o for o in (*info.mount_options, *info.super_options) if o not in ("ro", "rw")]
        options = tuple(dict.fromkeys(["ro" if read_only else "rw", *others]))
        points.append(MountPoint(info.source, info.mount_point, info.fs_type, options))
    return points


def search_mount_points(host_source: str, infos: Sequence[MountInfo]) -> list[str]:
    """Return the other mount points of the directory or mount: those with the same root on the same file system.

    The source does not identify a file system, because several tmpfs may have the same source, and a bind mount may
    show only a part of a file system. host_source is a path without links. Raise OSError if it is on none of the
    mounts.
    """
    # The search goes backwards, because later mounts hide earlier ones.
    for own in reversed(infos):
        if path_within_base(host_source, own.mount_point):
            break
    else:
        raise OSError(f"failed to get root path and major:minor for {host_source}")
    below = os.path.relpath(host_source, own.mount_point)
    root = os.path.normpath(os.path.join(own.root, below))
    same = (root, own.major, own.minor)
    return [i.mount_point for i in infos if i.id != own.id and (i.root, i.major, i.minor) == same]


def get_mount_refs_by_dev(mounter: Interface, mount_path: str) -> list[str]:
    """Return the other mount points of the device that is mounted at the path, which must not contain links."""
    points = mounter.list()
    device = next((point.device for point in points if point.path == mount_path), "")
    return [p.path for p in points if p.device in (device, mount_path) and p.path != mount_path]


def is_not_mount_point(mounter: Interface, path: str) -> bool:
    """Report whether the path is not a mount point. Raise FileNotFoundError or OSError."""
    return not mounter.is_mount_point(path)


def get_device_name_from_mount(mounter: Interface, mount_path: str) -> tuple[str, int]:
    """Return the device mounted at the path, or "", and the number of its mounts."""
    points = mounter.list()
    paths = {mount_path} if any(point.path == mount_path for point in points) else {os.path.realpath(mount_path)}
    device = next((point.device for point in points if point.path in paths), "")
    return device, sum(point.device == device for point in points)


def is_for_disks(fstype: str) -> bool:
    """Report whether fstype names a single type, without a subtype, of file systems that are stored on devices.

    Raise OSError.
    """
    without_device = {line.partition("\t")[2] for line in procfs.lines(_FILE_SYSTEMS) if line.startswith("nodev\t")}
    return _FSTYPE.fullmatch(fstype) is not None and fstype not in without_device


class SafeFormatAndMount:
    """Mount devices, and format empty ones."""

    def __init__(self, mounter: Interface, executor: utilexec.Interface) -> None:
        self.interface = mounter
        self.exec = executor

    def format_and_mount(self, source: str, target: str, fstype: str, options: list[str]) -> None:
        """Format the device if it is empty, and mount it. Raise MountError."""
        self.format_and_mount_sensitive(source, target, fstype, options, [])

    def format_and_mount_sensitive(
        self, source: str, target: str, fstype: str, options: list[str], sensitive_options: list[str]
    ) -> None:
        self.format_and_mount_sensitive_with_format_options(source, target, fstype, options, sensitive_options, [])

    def format_and_mount_sensitive_with_format_options(
        self,
        source: str,
        target: str,
        fstype: str,
        options: list[str],
        sensitive_options: list[str],
        format_options: list[str],
    ) -> None:
        """Format and mount. format_options are passed to mkfs unchanged, so they must not come from users."""
        read_only = "ro" in options or "ro" in sensitive_options
        options = [*options, "defaults"]
        fstype = fstype or "ext4"
        if not is_for_disks(fstype):
            # DIVERGES (safer): this kubelet mounts a disk only with the type of a disk file system.
            # Go: k8s.io/mount-utils/mount_linux.go, (*SafeFormatAndMount).formatAndMountSensitive: the Go kubelet
            # passes any type to mount(8).
            # Why: with "fuse.sh", mount.fuse(8) lets a shell run the content of the disk, which a pod may have written;
            # with "proc", the pod gets the node's /proc; a list of types could hide both.
            # Test: mount_test.py:test_file_system_that_is_none_is_not_mounted
            message = f"cannot mount disk {source}: {fstype!r} is not the type of a disk file system"
            raise MountError(MountErrorType.UNKNOWN_MOUNT_ERROR, message)
        try:
            existing = self.get_disk_format(source)
        except (utilexec.CodeExitError, OSError) as err:
            message = f"failed to get disk format of disk {source}: {err}"
            raise MountError(MountErrorType.GET_DISK_FORMAT_FAILED, message) from err
        failure = MountErrorType.UNKNOWN_MOUNT_ERROR
        if existing == "":
            self._format_disk(source, target, fstype, options, sensitive_options, format_options, read_only)
        else:
            if fstype != existing:
                failure = MountErrorType.FILESYSTEM_MISMATCH
                klog.warning_s(
                    "Disk has a different file system than configured, things might break",
                    disk=source,
                    configured=fstype,
                    current=existing,
                )
            if not read_only:
                self.check_and_repair_filesystem(source)
        klog.v(4).info_s("Attempting to mount disk", disk=source, fsType=fstype, target=target)
        try:
            self.interface.mount_sensitive(source, target, fstype, options, sensitive_options)
        except OSError as err:
            raise MountError(failure, str(err)) from err

    def _format_disk(
        self,
        source: str,
        target: str,
        fstype: str,
        options: list[str],
        sensitive_options: list[str],
        format_options: list[str],
        read_only: bool,
    ) -> None:
        if read_only:
            raise MountError(
                MountErrorType.UNFORMATTED_READ_ONLY,
                f"cannot mount unformatted disk {source} as we are manipulating it in read-only mode",
            )
        flags = {"ext3": ["-F", "-m0"], "ext4": ["-F", "-m0"], "xfs": ["-f"]}.get(fstype, [])
        arguments = [*format_options, *flags, source]
        klog.info_s("Disk appears to be unformatted, attempting to format", disk=source, fsType=fstype, args=arguments)
        try:
            self.format(fstype, arguments)
        except (utilexec.CodeExitError, OSError) as err:
            shown = sanitized_options_for_logging(options, sensitive_options)
            output = err.output.decode(errors="replace") if isinstance(err, utilexec.CodeExitError) else ""
            message = (
                f'format of disk "{source}" failed: type:("{fstype}") target:("{target}") options:("{shown}") '
                f"errcode:({err}) output:({output})"
            )
            klog.error_s(err, "Format of disk failed", disk=source, fsType=fstype, target=target, output=output)
            raise MountError(MountErrorType.FORMAT_FAILED, message) from err
        klog.info_s("Disk successfully formatted (mkfs)", disk=source, fsType=fstype, target=target)

    def format(self, fstype: str, arguments: list[str]) -> None:
        """Run mkfs. Raise CodeExitError or OSError."""
        self.exec.run([f"mkfs.{fstype}", *arguments])

    def check_and_repair_filesystem(self, source: str) -> None:
        """Run fsck. Raise MountError if it found errors that it could not correct."""
        klog.v(4).info_s("Checking for issues with fsck on disk", disk=source)
        try:
            self.exec.run(["fsck", "-a", source])
        except FileNotFoundError:
            klog.warning_s("'fsck' not found on system; continuing mount without running 'fsck'")
        except utilexec.CodeExitError as err:
            output = err.output.decode(errors="replace")
            if err.code == _FSCK_ERRORS_UNCORRECTED:
                raise MountError(
                    MountErrorType.HAS_FILESYSTEM_ERRORS,
                    f"'fsck' found errors on device {source} but could not correct them: {output}",
                ) from err
            if err.code == _FSCK_ERRORS_CORRECTED:
                klog.info_s("Device has errors which were corrected by fsck", device=source)
            else:
                klog.info_s("`fsck` error", device=source, err=err, output=output)

    def get_disk_format(self, disk: str) -> str:
        """Return what blkid finds on the device, or "". Raise CodeExitError or OSError."""
        return get_disk_format(self.exec, disk)


def get_disk_format(executor: utilexec.Interface, disk: str) -> str:
    """Return the type of the file system on the device, "" for an empty device, or a short text for a partition table.

    Raise CodeExitError. Raise OSError if blkid's output is invalid or the device cannot be read.

    DIVERGES (safer): in this kubelet, a device on which blkid(8) finds nothing is empty only if the device can be read
    and blkid(8) finds nothing again.
    Go: k8s.io/mount-utils/mount_linux.go, getDiskFormat: in the Go kubelet, a device is empty when blkid(8) finds
    nothing.
    Why: blkid(8) gives the same result for a device that it cannot open or read, for example when the network fails for
    a moment, and formatting the device would destroy its data.
    Test: mount_test.py:test_disk_that_blkid_could_not_read_for_a_moment_is_not_formatted,
    mount_test.py:test_disk_that_cannot_be_read_is_not_taken_for_an_empty_one
    """
    if found := _ask_blkid(executor, disk):
        return found
    try:
        executor.run(["dd", f"if={disk}", "of=/dev/null", f"bs={_SUPERBLOCKS_LENGTH}", "count=1"])
    except utilexec.CodeExitError as err:
        output = err.output.decode(errors="replace").strip()
        raise OSError(f"cannot read the start of {disk}: {err}: {output}") from err
    return _ask_blkid(executor, disk)


def _ask_blkid(executor: utilexec.Interface, disk: str) -> str:
    arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", disk]
    try:
        output = executor.run(["blkid", *arguments]).decode(errors="replace")
    except utilexec.CodeExitError as err:
        if err.code == _BLKID_NOTHING_FOUND:
            return ""
        klog.error_s(err, "Could not determine if disk is formatted", disk=disk)
        raise
    klog.v(4).info_s("Output of blkid", disk=disk, output=output)
    found = {}
    for line in filter(None, output.split("\n")):
        key, equals, value = line.partition("=")
        if not equals or "=" in value:
            raise OSError(f"blkid returns invalid output: {output}")
        found[key] = value
    if found.get("PTTYPE"):
        # A partition table is not a file system, but the device must not be formatted.
        return "unknown data, probably partitions"
    return found.get("TYPE", "")
