"""Zip archives: extracted once into the cache, with protection against unsafe members."""

import hashlib
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from hebbseg.data.cache import cache_folder
from hebbseg.data.cases import DataError

_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".7z", ".rar")


def is_archive(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(_ARCHIVES)


def unpacked(archive: Path) -> Path:
    """Return the cache folder of a zip archive, keyed by its hash; extract the archive if necessary."""
    if archive.suffix.lower() != ".zip":
        raise DataError(
            archive, f"a {archive.suffix} archive", "Only zip archives can be read. Extract it and pass the folder."
        )
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = cache_folder() / "zips" / digest[:32]
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".unpacking-"))
    try:
        _unpack(archive, temporary)
        temporary.chmod(0o755)
        try:
            temporary.rename(target)
        except OSError:  # another process has extracted the same files
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as zipped:
            members = [m for m in zipped.infolist() if not m.is_dir() and not m.filename.startswith("__MACOSX/")]
            for member in members:
                _refuse_unsafe(archive, member)
            needed, free = sum(member.file_size for member in members), shutil.disk_usage(folder).free
            if needed > free:
                raise DataError(
                    archive,
                    f"needs {needed / 2**30:.1f} GiB extracted, but {folder.parent} has only {free / 2**30:.1f} GiB free",
                    "Free disk space, or set HEBBSEG_CACHE to a folder on a larger disk.",
                )
            for member in members:
                zipped.extract(member, folder)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise DataError(archive, f"not a readable zip archive ({error})", "Download it again.") from error


def _refuse_unsafe(archive: Path, member: zipfile.ZipInfo) -> None:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise DataError(
            archive, f"member {member.filename!r} would be extracted outside the target folder", "Do not use this archive."
        )
    if stat.S_ISLNK(member.external_attr >> 16):
        raise DataError(
            archive, f"member {member.filename!r} is a symbolic link", "Extract the archive manually and pass the folder."
        )
    if member.flag_bits & 0x1:
        raise DataError(archive, "encrypted archive", "Extract it with its password and pass the folder.")
