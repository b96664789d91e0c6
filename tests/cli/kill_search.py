"""Starts a command that writes a tuning database and sends it a signal once the database holds some candidates.

    python3 kill_search.py KILL|INT CANDIDATES DATABASE command arguments...

Prints the exit status a shell would show (128 + the signal when that ended it) and nothing of the command's own output.
"""
import os
import signal
import sqlite3
import subprocess
import sys
import time

DEADLINE_S = 60


def candidates(database):
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=1)
        try:
            return connection.execute("SELECT count(*) FROM candidates").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error:   # not there yet, or without tables
        return 0


def main():
    name, wanted, database, command = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + DEADLINE_S
    while candidates(database) < wanted:
        if child.poll() is not None or time.monotonic() > deadline:
            child.kill()
            print(f"ended or hung before {wanted} candidates: status {child.wait()}")
            return 1
        time.sleep(0.002)
    os.kill(child.pid, getattr(signal, f"SIG{name}"))
    status = child.wait(timeout=DEADLINE_S)
    print(f"exit {status if status >= 0 else 128 - status}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
