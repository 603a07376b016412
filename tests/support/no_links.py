"""Takes hard links from this process, as in a file system that has none (SMB, blobfuse), by a filter of the kernel."""

import ctypes
import errno
import struct

_LINK, _LINKAT = 86, 265  # the numbers of the calls on x86-64
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2  # of prctl
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # instructions of the filter
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def forbid_links() -> None:
    """Let each `link` and `linkat` of this process, and of those that it starts, fail with EOPNOTSUPP."""
    program = [
        (_LOAD, 0, 0, 0),
        (_IF_EQUAL, 1, 0, _LINK),
        (_IF_EQUAL, 0, 1, _LINKAT),
        (_RETURN, 0, 0, _ERRNO | errno.EOPNOTSUPP),
        (_RETURN, 0, 0, _ALLOW),
    ]
    content = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (
        (_NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        (_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(program), ctypes.addressof(content)))),
    ):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "prctl")
