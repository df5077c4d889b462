"""Checks of the spacing to which images are resampled, before any image is decoded."""

from hebbseg.config import DataSettings
from hebbseg.data.cases import Source
from hebbseg.data.io.image_file import Header
from hebbseg.data.sources.files import FileSource
from hebbseg.errors import HebbsegError
from hebbseg.planning.true_space import shown
from hebbseg.runs.dataset import preprocessing_of

FEWEST = 4  # pixels along an axis that resampling may leave of more


def check_spacing(settings: DataSettings) -> None:
    """Raise if both a size and a spacing are given."""
    if isinstance(settings.spacing, tuple) and isinstance(settings.size, tuple):
        raise HebbsegError(
            f"size={'x'.join(map(str, settings.size))} and spacing={shown(settings.spacing)}: images are resized to a size or "
            "resampled to a spacing. Choose one of the two."
        )


def check_resampled(settings: DataSettings, source: Source) -> None:
    """Raise if an image resampled to the planned spacing would be larger than the limit, or nearly vanish."""
    if not isinstance(settings.spacing, tuple) or not isinstance(source, FileSource):
        return
    preprocessing = preprocessing_of(source, settings)
    for case in source.cases:
        header = source.headers.get(case.id)
        if not isinstance(header, Header) or header.spacing_mm is None or len(header.shape) != source.spatial_dims:
            continue  # reported when the image is read
        try:
            size = preprocessing.working_size(header.shape, header.spacing_mm)
        except HebbsegError as error:
            raise HebbsegError(f"{case.image[0]}: {error}") from error
        if any(new < min(FEWEST, old) for new, old in zip(size, header.shape, strict=True)):
            raise HebbsegError(
                f"{case.image[0]}: spacing={shown(settings.spacing)} would leave {'×'.join(map(str, size))} of its "
                f"{'×'.join(map(str, header.shape))} pixels of {shown(header.spacing_mm)} mm. Spacings are in mm; give a finer "
                "--spacing, or correct the header of the file."
            )
