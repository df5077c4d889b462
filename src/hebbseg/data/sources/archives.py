"""Zip archives: extracted once into the cache, with protection against unsafe members."""

import hashlib
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from hebbseg.atomic_files import owner, remove_litter
from hebbseg.data.cache import cache_folder
from hebbseg.data.cases import DataError
from hebbseg.data.io.limits import MOST_COMPRESSED, SMALL_BYTES
from hebbseg.errors import explaining

UNPACKING = ".unpacking-"
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".7z", ".rar")


def is_archive(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(_ARCHIVES)


def unpacked(archive: Path) -> Path:
    """Return the cache folder of a zip archive, keyed by its hash; extract the archive if necessary."""
    if archive.suffix.lower() != ".zip":
        raise DataError(
            archive, f"a {archive.suffix} archive", "Only zip archives can be read. Extract it and pass the folder."
        )
    with explaining(archive, "not readable", "Download it again.", error=DataError), archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = cache_folder() / "zips" / digest[:32]
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_litter(target.parent, UNPACKING)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{UNPACKING}{owner()}-"))
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
    with (
        explaining(archive, "not a readable zip archive", "Download it again.", error=DataError),
        zipfile.ZipFile(archive) as zipped,
    ):
        members = [m for m in zipped.infolist() if not m.is_dir() and not m.filename.startswith("__MACOSX/")]
        for member in members:
            _refuse_unsafe(archive, member)
        needed, free = sum(member.file_size for member in members), shutil.disk_usage(folder).free
        if needed > max(SMALL_BYTES, MOST_COMPRESSED * archive.stat().st_size):
            raise DataError(
                archive,
                f"its members declare {needed} bytes, but the archive has {archive.stat().st_size}",
                "No archive of images is compressed that much. Extract it manually and pass the folder.",
            )
        if needed > free:
            raise DataError(
                archive,
                f"needs {needed / 2**30:.1f} GiB extracted, but {folder.parent} has only {free / 2**30:.1f} GiB free",
                "Free disk space, or set HEBBSEG_CACHE to a folder on a larger disk.",
            )
        for member in members:
            zipped.extract(member, folder)  # reads at most the declared size


def _refuse_unsafe(archive: Path, member: zipfile.ZipInfo) -> None:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if not path.parts or path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise DataError(
            archive, f"member {member.filename!r} would be extracted outside the target folder", "Do not use this archive."
        )
    if stat.S_ISLNK(member.external_attr >> 16):
        raise DataError(
            archive, f"member {member.filename!r} is a symbolic link", "Extract the archive manually and pass the folder."
        )
    if member.flag_bits & 0x1:
        raise DataError(archive, "encrypted archive", "Extract it with its password and pass the folder.")
