# %% [markdown]
# # Train a model on a folder of images
# A folder of generated images, of which six have a mask; both training stages; predicted masks.
# Replace `my_data` by your own folder with `images/` and `masks/`.

# %%
import tempfile
from pathlib import Path

from PIL import Image

from hebbseg import Segmenter
from hebbseg.data.sources import open_source

folder = Path(tempfile.mkdtemp())
my_data = folder / "my_data"
(my_data / "images").mkdir(parents=True)
(my_data / "masks").mkdir()
source = open_source("phantom:glands?n=24&size=48")
for number, case in enumerate(source.cases):
    image = source.image(case).transpose(1, 2, 0)  # (channel, y, x) → (y, x, channel)
    Image.fromarray(image).save(my_data / "images" / f"{case.id}.png")
    if number < 6:
        Image.fromarray(source.mask(case) * 255).save(my_data / "masks" / f"{case.id}.png")

# %% [markdown]
# Settings are keywords. These make the example short: leave them out for a real training, or set a time limit with
# `time_budget_s=1800`.

# %%
short = {"size": "48x48", "features": "4,8,16", "updates": 20, "pretrain_epochs": 1}
segmenter = Segmenter.train(my_data, folder / "run", seed=0, **short)

# %% [markdown]
# Masks have the size of their images and the values of the training masks.

# %%
names = sorted((my_data / "images").iterdir())[6:9]
for name, mask in zip(names, segmenter.predict(names), strict=True):
    print(name.name, mask.shape, f"{(mask > 0).mean():.0%} foreground")

# %% [markdown]
# A saved model contains everything that prediction needs, and no executable code.

# %%
segmenter.save(folder / "model.safetensors")
again = Segmenter.load(folder / "model.safetensors")
print(again)
