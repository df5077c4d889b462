"""Patient ids in the names of cases."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence

from hebbseg.data.cases import Case, Problem

# Words that precede a patient's number; then numbers at the beginning of a name, which often are patients, too.
_WORD_AND_NUMBER = re.compile(r"(patient|patnr|pat|subject|subj|sub|case|p|s)([-_ ]?)(\d+|(?<=-)[0-9a-z]+)(?=[-_. /]|$)", re.I)
_NUMBER = re.compile(r"(\d+)(?=[-_ ])")


def propose_groups(cases: Sequence[Case], source: str) -> Problem | None:
    """Return the proposal of a ``--group`` if names contain patient ids and a patient has several images."""
    if len(cases) < 3 or any(case.group is not None for case in cases):
        return None
    for pattern in _patterns(cases[0].id):
        found = [re.search(pattern, case.id) for case in cases]
        patients = Counter(match.group(1) for match in found if match is not None)
        if None in found or not 1 < len(patients) < len(cases):
            continue
        names = sorted(patients)
        most = max(patients.values())
        return Problem(
            source,
            f"the names contain what looks like patient ids ({names[0]} … {names[-1]}: {len(names)} patients with up to {most} "
            "images), but no groups are set, so images of one patient can be in both the training and the test set",
            f"Pass --group {shlex.quote(pattern)} to keep the images of a patient together. If they are not patients, no "
            "action is needed.",
        )
    return None


def _patterns(id: str) -> list[str]:
    r"""Return regular expressions for the patient in ids like this one.

    >>> _patterns("train/patient001_frame01")
    ['(?:^|/)(patient\\d+)']
    """
    patterns = []
    folders = id.split("/")
    for part in folders:
        if match := _WORD_AND_NUMBER.match(part):
            word, separator, number = match.groups()
            value = r"\d+" if number.isdigit() else "[0-9A-Za-z]+"
            patterns.append(f"(?:^|/)({word}{separator}{value})")
        elif match := _NUMBER.match(part):
            patterns.append(r"(?:^|/)(\d+)[-_ ]")
    return [pattern if len(folders) > 1 else pattern.replace("(?:^|/)", "^") for pattern in patterns]
