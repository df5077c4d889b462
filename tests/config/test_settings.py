"""Names of settings."""

import pytest

from hebbseg.config import make_settings, settings_of_run
from hebbseg.errors import HebbsegError


def test_an_unknown_setting_gets_the_nearest_three() -> None:
    with pytest.raises(HebbsegError) as error:
        make_settings("data", {"pretrain_epoch": 3})
    said = str(error.value)
    assert "Did you mean 'pretrain_epochs'" in said and "--list-settings" in said and "--help" in said
    assert said.count("'") == 2 * 4, "the option and three names"


def test_a_name_that_resembles_none() -> None:
    with pytest.raises(HebbsegError, match=r"Unknown option 'zzzzzz'\. `hebbseg train --help`"):
        make_settings("data", {"zzzzzz": 3})


def test_a_run_of_a_version_without_cutmix_is_resumed_without_it() -> None:
    stored = make_settings("data", {}).flat()
    assert settings_of_run(stored).finetune.cutmix == "auto"
    stored.pop("cutmix")
    assert settings_of_run(stored).finetune.cutmix == 0
