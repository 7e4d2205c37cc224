#!/usr/bin/env python3
"""Kills a machine of four kernels with SIGKILL while programs on all of them write files on a disk, sync, rename and remove them; then looks at the image: e2fsck -p
must be content, and each file that a program has said to be synced must be there, whole.

usage: tests/disk/kills.py [TIMES]    TIMES: machines that are killed, 10 without it
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

PROJECT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = 4

WRITER = """
import os, sys
cpu, directory = int(sys.argv[1]), f'd/{sys.argv[1]}'
os.sched_setaffinity(0, {cpu})
os.makedirs(directory, exist_ok=True)
top = os.open(directory, os.O_RDONLY)
number = 0
while True:
    number += 1
    name = f'{directory}/{number}'
    with open(name + '.new', 'wb') as file:
        file.write(f'{cpu} {number}|'.encode() * (number * 37 % 2000 + 1))
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + '.new', name)
    os.fsync(top)
    os.write(1, f'synced {cpu} {number}\\n'.encode())
    if number > 20:
        os.unlink(f'{directory}/{number - 20}')
"""

PROGRAM = f"""
mkdir -p d; mount /dev/vda d || exit 1
for cpu in {' '.join(map(str, range(KERNELS)))}; do python3 writer.py $cpu & done; wait
"""


def checked(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


def killed(directory, image, after):
    """Runs a machine until so many files are synced, then kills it. Gives the highest number of each writer."""
    command = [PROJECT / "cob", "run", "--kernels", str(KERNELS), "--disk", str(image), "--", "sh", "program.sh"]
    machine = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True, start_new_session=True)
    synced, count, is_killed = {}, 0, False
    for line in machine.stdout:
        # One that was cut off says nothing.
        found = re.fullmatch(r"synced (\d+) (\d+)\n", line)
        if found:
            synced[int(found[1])] = int(found[2])
            count += 1
        if count >= after and not is_killed:
            # What it has said before is still to be read.
            os.killpg(machine.pid, signal.SIGKILL)
            is_killed = True
    machine.wait()
    assert count >= after, "the machine ended by itself"
    return synced


def main():
    times = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdecimal() else 10 if len(sys.argv) == 1 else 0
    if times < 1:
        sys.exit(__doc__)
    chance = random.Random(38)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        (directory / "writer.py").write_text(WRITER)
        (directory / "program.sh").write_text(PROGRAM)
        confirmed = 0
        for turn in range(1, times + 1):
            image = directory / "image"
            image.unlink(missing_ok=True)
            with open(image, "wb") as file:
                file.truncate(96 << 20)
            subprocess.run(["/usr/sbin/mkfs.ext4", "-q", image], check=True)
            after = chance.randrange(30, 160)
            synced = killed(directory, image, after)
            code, text = checked("/usr/sbin/e2fsck", "-fp", str(image))
            assert code in (0, 1), text
            code, text = checked("/usr/sbin/e2fsck", "-fn", str(image))
            assert code == 0, text
            for cpu, last in synced.items():
                # The older ones may have been removed, of the last twenty none was when it was said to be synced but the oldest.
                for number in range(max(1, last - 18), last + 1):
                    _, text = checked("/usr/sbin/debugfs", "-R", f"cat /{cpu}/{number}", str(image))
                    wanted = f"{cpu} {number}|" * (number * 37 % 2000 + 1)
                    assert wanted in text, f"machine {turn}: file {cpu}/{number} of {last} is lost: {text[:100]!r}"
                    confirmed += 1
            print(f"machine {turn}: killed after {after} files, {sum(synced.values())} were synced", flush=True)
        print(f"{times} machines killed, {confirmed} synced files are there")


main()
