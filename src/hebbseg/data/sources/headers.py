"""Headers of cases, whose channels can be in several files."""

from collections.abc import Iterable
from dataclasses import replace

from hebbseg.data.cases import Case
from hebbseg.data.io.formats import read_header
from hebbseg.data.io.image_file import Header
from hebbseg.data.io.orientation import CANONICAL
from hebbseg.errors import HebbsegError


def read_case_header(case: Case, level: int) -> Header | HebbsegError:
    """Return the header of a case with the channels of all its files, or the error raised by reading it."""
    try:
        headers = [read_header(path, level) for path in case.image]
    except HebbsegError as error:
        return error
    channels = sum(header.channels for header in headers)
    return replace(headers[0], channels=channels, opacity=any(header.opacity for header in headers))


def common_orientation(headers: Iterable[Header | HebbsegError]) -> str | None:
    """Return the orientation of all volumes, or RAS if they differ; None if no volume states one."""
    volumes = (header for header in headers if isinstance(header, Header) and len(header.shape) == 3)
    found = {header.orientation for header in volumes} - {None}
    return CANONICAL if len(found) > 1 else next(iter(found), None)
