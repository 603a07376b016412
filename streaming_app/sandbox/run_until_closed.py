"""Runs one program, and terminates it as soon as its own standard input closes, for example when its parent is killed.

    python run_until_closed.py GRACE_SECONDS PROGRAM ARGUMENT...

Prints the program's process id, then waits until the program exits or standard input closes. It uses only the standard
library: `child_process.py` starts it by path with `-I -S`, so that it starts fast.
"""

import os
import subprocess
import sys
import threading

_KILLED_BY_SIGNAL = 128  # the shell's convention for exit codes


def main(grace_seconds: float, command: list[str]) -> int:
    """Return the program's exit code; 128 + N if signal N terminated it."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)  # noqa: S603 - the parent's program
    print(program.pid, flush=True)  # noqa: T201 - the parent reads it

    def terminate_with_parent() -> None:
        os.read(sys.stdin.fileno(), 1)  # unbuffered, so that no lock is held when the program exits first
        program.terminate()
        try:
            program.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            program.kill()

    threading.Thread(target=terminate_with_parent, daemon=True).start()
    code = program.wait()
    return code if code >= 0 else _KILLED_BY_SIGNAL - code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
