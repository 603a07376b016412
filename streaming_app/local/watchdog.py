"""Runs one program and ends it as soon as its standard input closes, which also happens when its owner is killed.

    python watchdog.py GRACE_SECONDS PROGRAM ARGUMENT...

Prints the program's process id, then waits for whichever ends first. Uses the standard library alone: it is started
by path, with `-I -S`, so that it costs little. `process.py` is its owner.
"""

import os
import subprocess
import sys
import threading

_KILLED_BY_SIGNAL = 128  # a shell's convention for the exit code


def main(grace_seconds: float, command: list[str]) -> int:
    """Return the program's exit code, 128 + N if signal N ended it."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)  # noqa: S603 - the owner's program
    print(program.pid, flush=True)  # noqa: T201 - the owner reads it

    def end_with_owner() -> None:
        os.read(sys.stdin.fileno(), 1)  # unbuffered: nothing holds a lock when this program exits first
        program.terminate()
        try:
            program.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            program.kill()

    threading.Thread(target=end_with_owner, daemon=True).start()
    code = program.wait()
    return code if code >= 0 else _KILLED_BY_SIGNAL - code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
