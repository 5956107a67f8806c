"""A job's data on its node's own disk, and what the job leaves there back in the run directory.

Job scripts contain this file's text, and run it with any Python 3.6 or later: use the standard library and old syntax
only. ``stage.py check NODE`` looks for what would be refused, on the first node; ``stage.py in NODE`` and ``stage.py
back NODE`` run once on each. They find in their environment RUN, RANKUP_STAGE (the folder on the node's disk),
STAGE_SOURCES (lines of NAME=PATH) and STAGE_BACK (lines of patterns).
"""

import concurrent.futures
import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

# What unpacks an archive that comes on its stdin; by the end of its name.
UNPACK = {
    (".tar",): (),
    (".tar.gz", ".tgz"): ("--gzip",),
    (".tar.zst", ".tzst"): ("--use-compress-program=zstd",),
}
IMAGES = (".squashfs", ".sqfs", ".sqsh")
PIECE = 4 << 20
COPIES = 16  # of a folder's files at once: a shared file system answers each of them late
TOLD_EVERY_S = 10.0


class StageError(Exception):
    """Why the job cannot start: a code, and a sentence."""


class Source:
    """One line of STAGE_SOURCES: its path, its place on the node, how large it is, and a mark that changes with it."""

    def __init__(self, name: str, path: str, folder: str) -> None:
        self.name, self.path, self.place = name, path, os.path.join(folder, name)
        if not os.path.exists(self.path):
            raise StageError(f"stage-no-source: there is no {self.path!r} here ({name})")
        self.is_folder = os.path.isdir(self.path)
        self.is_image = self.path.endswith(IMAGES) and not self.is_folder
        files = [path for path, is_link in tree(self.path) if not is_link] if self.is_folder else [self.path]
        stats = [os.stat(path) for path in files]
        self.size = sum(stat.st_size for stat in stats)
        self.mark = [self.path, len(files), self.size, max([stat.st_mtime_ns for stat in stats] or [0])]
        self.note = os.path.join(folder, ".staged", name + ".json")  # written last: what was staged whole
        self.cast = f"{folder}-{name}"  # where sbcast puts it on each node

    @property
    def tar_options(self) -> Any:
        """How tar reads it; None for what is no archive."""
        ways = [how for ends, how in UNPACK.items() if self.path.endswith(ends)]
        return ways[0] if ways and not self.is_folder else None

    def staged(self) -> str:
        """The checksum of what is there from an attempt before this one, "" if it is not the same or not whole."""
        try:
            with open(self.note) as file:
                noted = json.load(file)
        except (OSError, ValueError):
            return ""
        return noted["sha256"] if noted["mark"] == self.mark and os.path.exists(self.place) else ""

    def expected(self) -> "dict[str, str]":
        """Checksums that ``sha256sum`` has left beside it, in PATH.sha256, by the file's name; of a folder many."""
        try:
            with open(self.path + ".sha256") as file:
                lines = [line.split(None, 1) for line in file if line.strip()]
        except OSError:
            return {}
        if not self.is_folder:
            return {"": lines[0][0]} if lines else {}
        return {os.path.normpath(words[1].strip().lstrip("*")): words[0] for words in lines}


class Progress:
    """A line every few seconds, and one at the end. Copies in threads add to it."""

    def __init__(self, source: Source) -> None:
        self.source, self.done, self.began = source, 0, time.time()
        self.told, self.lock = self.began, threading.Lock()

    def add(self, count: int) -> None:
        with self.lock:
            self.done += count
            if time.time() - self.told >= TOLD_EVERY_S:
                self.told = time.time()
                say(f"{self.source.name}: {size(self.done)} of {size(self.source.size)}")

    def end(self, sha256: str) -> None:
        seconds = time.time() - self.began
        rate = size(int(self.done / max(seconds, 1e-3)))
        say(f"{self.source.name}: {size(self.done)} in {seconds:.1f} s ({rate}/s), sha256 {sha256[:16]}")


def say(text: str) -> None:
    sys.stdout.write(f"==== rankup: stage, {socket.gethostname()}: {text}\n")
    sys.stdout.flush()


def size(count: float) -> str:
    units = ["TB", "GB", "MB", "kB", "B"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop()
    return f"{count:.{int(len(units) < 5)}f} {units[-1]}"


def tree(folder: str) -> "list[tuple[str, bool]]":
    """All files and symbolic links below ``folder``, and whether each is a link; folders are made with them."""
    found = []
    for place, folders, files in os.walk(folder, onerror=fail):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        paths = [os.path.join(place, name) for name in files + links]
        found += [(path, os.path.islink(path)) for path in paths]
    return sorted(found)


def fail(error: OSError) -> None:
    raise error


def read(path: str, progress: Progress, take: "Callable[[bytes], Any]") -> str:
    """Give the file piece by piece to ``take``; its SHA-256 sum."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while True:
            piece = file.read(PIECE)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)
            take(piece)
            progress.add(len(piece))


def copy_file(path: str, place: str, progress: Progress) -> str:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place + ".part", "wb") as file:
        sha256 = read(path, progress, file.write)
    shutil.copystat(path, place + ".part")
    os.replace(place + ".part", place)
    return sha256


def copy_folder(source: Source, progress: Progress) -> str:
    """In threads; the checksum is that of the list of its files, as ``sha256sum`` prints them."""
    expected = source.expected()
    for place, folders, _ in os.walk(source.path):
        for name in folders:
            path = os.path.join(place, name)
            if not os.path.islink(path):
                os.makedirs(os.path.join(source.place, os.path.relpath(path, source.path)), exist_ok=True)
    os.makedirs(source.place, exist_ok=True)

    def one(item: "tuple[str, bool]") -> str:
        path, is_link = item
        name = os.path.relpath(path, source.path)
        place = os.path.join(source.place, name)
        if is_link:
            os.symlink(os.readlink(path), place)
            return f"link to {os.readlink(path)}  {name}\n"
        sha256 = copy_file(path, place, progress)
        compare(sha256, expected.pop(name, sha256), path, source)
        return f"{sha256}  {name}\n"

    with concurrent.futures.ThreadPoolExecutor(COPIES) as pool:
        lines = list(pool.map(one, tree(source.path)))
    if expected:
        missing = sorted(expected)[0]
        raise StageError(
            f"stage-wrong-checksum: {source.path}.sha256 lists {missing}, which is not in the folder"
        )
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def unpack(source: Source, path: str, progress: Progress) -> str:
    """By tar, which reads what is hashed here: the archive is read once, and needs no space on the node."""
    os.makedirs(source.place)
    command = ["tar", "--extract", "--directory", source.place, *source.tar_options]
    with tempfile.TemporaryFile() as said:  # a pipe that is full would stop it
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said)

        def give(piece: bytes) -> None:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # tar stops at the archive's end mark, or says why
                process.stdin.write(piece)
                process.stdin.flush()

        sha256 = read(path, progress, give)
        process.communicate()
        if process.returncode != 0:
            said.seek(0)
            refuse_tool("tar", said.read().decode(errors="replace"), source)
    unpacker = os.path.join(source.place, "bin", "conda-unpack")
    if os.path.exists(unpacker):  # of conda-pack: writes the new place into the environment's files
        done = subprocess.run([os.path.join(source.place, "bin", "python"), unpacker], stderr=subprocess.PIPE)
        if done.returncode != 0:
            refuse_tool("conda-unpack", done.stderr.decode(errors="replace"), source)
    return sha256


def unpack_image(source: Source, path: str, progress: Progress) -> str:
    image = source.place + ".image"
    sha256 = copy_file(path, image, progress)
    command = ["unsquashfs", "-no-progress", "-dest", source.place, image]
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise StageError(f"stage-no-tool: unsquashfs, which unpacks {source.path}, is not on PATH") from None
    if done.returncode != 0:
        refuse_tool("unsquashfs", done.stderr.decode(errors="replace"), source)
    os.remove(image)
    return sha256


def refuse_tool(tool: str, said: str, source: Source) -> None:
    if "No space left" in said or "Disk quota" in said:
        raise OSError(errno.ENOSPC, said, source.place)
    last = ([line for line in said.splitlines() if line.strip()] or ["it gave no reason"])[0]
    raise StageError(f"stage-bad-archive: {tool} could not unpack {source.path}: {last}")


def compare(sha256: str, expected: str, path: str, source: Source) -> None:
    if sha256 != expected:
        raise StageError(
            f"stage-wrong-checksum: the SHA-256 sum of {path} is {sha256}, and {source.path}.sha256 says {expected}"
        )


def agree(source: Source, sha256: str) -> None:
    """All nodes and all attempts of the run have the same data: the first of them notes its checksum for all."""
    noted = os.path.join(os.environ["RUN"], "stage", source.name + ".sha256")
    os.makedirs(os.path.dirname(noted), exist_ok=True)
    first = first_to_say(noted, f"{sha256}  {source.path}\n").split()[0]
    if first != sha256:
        raise StageError(
            f"stage-changed: {source.path} is not what the run's first node had: "
            f"its SHA-256 sum is {sha256}, and was {first}"
        )


def first_to_say(path: str, text: str) -> str:
    """Write ``text`` unless another node has written that file; what it holds, which is always whole."""
    own = f"{path}.{socket.gethostname()}.{os.getpid()}"
    with open(own, "w") as file:
        file.write(text)
    try:
        os.link(own, path)
    except FileExistsError:
        with open(path) as file:
            return file.read()
    finally:
        os.remove(own)
    return text


def bring(source: Source) -> None:
    """Onto this node, whole or with an error; what is there from a killed attempt is used, if it is whole."""
    sha256 = source.staged()
    if sha256:
        say(f"{source.name}: found, sha256 {sha256[:16]}")
    else:
        remove(source.place)
        progress = Progress(source)
        path = source.cast if os.path.isfile(source.cast) else source.path
        if source.is_folder:
            sha256 = copy_folder(source, progress)
        elif source.is_image:
            sha256 = unpack_image(source, path, progress)
        elif source.tar_options is not None:
            sha256 = unpack(source, path, progress)
        else:
            sha256 = copy_file(path, source.place, progress)
        remove(source.cast)
        progress.end(sha256)
    if not source.is_folder:
        compare(sha256, source.expected().get("", sha256), source.path, source)
    agree(source, sha256)
    with open(source.note, "w") as file:
        json.dump({"mark": source.mark, "sha256": sha256}, file)


def make_folder(folder: str) -> None:
    """Ours alone: others may write to a node's /tmp as well."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if os.stat(folder).st_uid != os.getuid() or os.path.islink(folder):
            raise StageError(f"stage-no-folder: {folder} is somebody else's") from None
    except OSError as error:
        raise StageError(
            f"stage-no-folder: cannot make {folder}: {error.strerror}; the site's profile says where a node's disk is: "
            "[node] local_disk"
        ) from error
    os.makedirs(os.path.join(folder, ".staged"), exist_ok=True)
    owner = first_to_say(node_note(folder), socket.gethostname())
    if owner != socket.gethostname():
        raise StageError(
            f"stage-shared-disk: {folder} is the same directory on {owner}: local_disk must name a disk of each node's "
            "own; what all nodes see needs no staging"
        )


def node_note(folder: str) -> str:
    return os.path.join(folder, ".staged", "node")


def check_space(sources: "list[Source]", folder: str) -> None:
    """Before anything is copied. Of a compressed archive only its own size is known, which is the least it needs."""
    needed = sum(source.size for source in sources if not source.staged())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StageError(f"stage-no-space: {folder} needs {size(needed)}, and has {size(free)} free")


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def copy_results(paths: "list[str]", start: str, folder: str, *, replace: bool) -> int:
    """Files and folders below ``start`` to the same places below ``folder``; how many files were copied."""
    items, copied = [], 0
    for path in paths:
        is_link = os.path.islink(path)
        items += tree(path) if os.path.isdir(path) and not is_link else [(path, is_link)]
    for path, is_link in items:
        place = os.path.join(folder, os.path.relpath(path, start))
        if os.path.lexists(place) and (not replace or same(path, place)):
            continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy2(path, place + ".part", follow_symlinks=not is_link)
        os.replace(place + ".part", place)
        copied += 1
    return copied


def same(path: str, place: str) -> bool:
    one, other = os.lstat(path), os.lstat(place)
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def stage_in(folder: str, results: str, *, only_check: bool = False) -> None:
    make_folder(folder)
    lines = [line.partition("=") for line in os.environ["STAGE_SOURCES"].splitlines()]
    sources = [Source(name, path, folder) for name, _, path in lines]
    check_space(sources, folder)
    if only_check:
        return
    for source in sources:
        bring(source)
    if os.path.isdir(results):  # of an attempt before: what it wrote is there again
        copy_results([results], results, folder, replace=False)


def stage_back(folder: str, results: str) -> None:
    """All of it, or what a node has left stays there. Who is told to end meanwhile goes on, until a KILL."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)
    try:
        with open(node_note(folder)) as file:
            if file.read() != socket.gethostname():
                return
    except FileNotFoundError:
        return
    patterns = [os.path.join(glob.escape(folder), line) for line in os.environ["STAGE_BACK"].splitlines()]
    found = sorted({path for pattern in patterns for path in glob.glob(pattern, recursive=True)})
    copied = copy_results(found, folder, results, replace=True)
    say(f"{copied} files copied to {results}")
    for path in [folder, *glob.glob(glob.escape(folder) + "-*")]:  # also what sbcast has left
        remove(path)


def main(do: str, node: str) -> int:
    folder, run = os.environ["RANKUP_STAGE"], os.environ["RUN"]
    results = os.path.join(run, "results", "node-" + node)
    try:
        if do == "back":
            stage_back(folder, results)
        else:
            stage_in(folder, results, only_check=do == "check")
        return 0
    except StageError as error:
        why = str(error)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = "stage-no-space" if full else "stage-failed"
        why = f"{code}: {error.filename or folder}: {error.strerror}"
    say(why)
    if do != "back":  # srun then ends the tasks of the other nodes: their errors are not the cause
        first_to_say(os.path.join(run, "why"), f"{socket.gethostname()}: {why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
