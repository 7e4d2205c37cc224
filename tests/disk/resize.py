#!/usr/bin/env python3
"""Gives the disk of a running machine another size (QMP block_resize), larger and smaller: programs on each of its kernels see it in /sys and by ioctl, can write what
has been added, and the kernel's log tells of it.

usage: tests/disk/resize.py     COB and COB_KERNEL name another host command and kernel than the project's.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

PROJECT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = 2
MIB = 1 << 20
SIZES = [64 * MIB, 96 * MIB, 32 * MIB]

# Waits for each change where the disk is, and looks at it on every kernel.
PROGRAM = """
import array, fcntl, os
def look(cpu):
    os.sched_setaffinity(0, {cpu})
    size = int(open('/sys/block/vda/size').read()) * 512
    with open('/dev/vda', 'r+b', buffering=0) as disk:
        bytes = array.array('Q', [0])
        fcntl.ioctl(disk, 0x80081272, bytes)
        end = disk.seek(0, 2)
        disk.seek(-512, 1)
        disk.write(f'the end of {size}'.encode().ljust(512))
        os.fsync(disk)
        past = disk.read(1)
    print('seen', cpu, size, bytes[0], end, past == b'', flush=True)
known = 0
for _ in range(SIZES):
    while (size := os.stat('/dev/vda') and int(open('/sys/block/vda/size').read())) == known:
        os.sched_yield()
    known = size
    for cpu in range(KERNELS):
        look(cpu)
""".replace("SIZES", str(len(SIZES))).replace("KERNELS", str(KERNELS))


class Monitor:
    """QEMU's line of commands."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(str(path))
        self.lines = self.stream.makefile("r")
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        self.stream.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            said = json.loads(self.lines.readline())
            if "return" in said or "error" in said:
                return said


def run(directory, words=""):
    """Gives what the program has printed, what QEMU has answered, and the kernels' log."""
    (directory / "program.py").write_text(PROGRAM)
    qemu = directory / "qemu"
    inner = os.environ.get("COB_QEMU", "qemu-system-x86_64")
    qemu.write_text(f'#!/bin/sh\nexec {inner} "$@" -qmp unix:{directory}/qmp,server=on,wait=off\n')
    qemu.chmod(0o755)
    disk = f"{directory}/disk.img,size={SIZES[0] // MIB}M{words}"
    cob = os.environ.get("COB", PROJECT / "cob")
    command = [cob, "run", "--kernels", str(KERNELS), "--cpus", str(KERNELS), "--timeout", "120"]
    command += ["--log", directory / "log", "--disk", disk, "--", "python3", "program.py"]
    environment = {**os.environ, "COB_QEMU": str(qemu)}
    machine = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True, env=environment)
    seen, answers, rest, monitor = [], [], SIZES[1:], None
    for line in machine.stdout:
        seen.append(line.split())
        if len(seen) % KERNELS == 0 and rest:
            # QEMU has one client at a time.
            monitor = monitor or Monitor(directory / "qmp")
            answers.append(monitor.ask("block_resize", device="disk0", size=rest.pop(0)))
            if "error" in answers[-1]:
                machine.terminate()
    machine.wait()
    return seen, answers, (directory / "log").read_text(errors="replace")


def main():
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        seen, answers, log = run(directory)
        expected = [
            ["seen", str(cpu), str(size), str(size), str(size), "True"] for size in SIZES for cpu in range(KERNELS)
        ]
        assert seen == expected, f"{seen}\n{answers}\n{log[-2000:]}"
        for old, new in zip(SIZES, SIZES[1:]):
            words = f"vda: detected capacity change from {old // 512} to {new // 512}"
            assert words in log, f"the log does not say: {words}"
        image = (directory / "disk.img").read_bytes()
        assert len(image) == SIZES[-1], len(image)
        assert image[-512:].startswith(b"the end of %d" % SIZES[-1])
    with tempfile.TemporaryDirectory() as directory:
        _, answers, _ = run(pathlib.Path(directory), ",delay=1")
        assert "error" in answers[0], answers
        print("a disk that cob serves:", answers[0]["error"]["desc"])
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
