"""Small data sets on disk in the layouts the sources read."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image as Pillow


def picture(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def disc(height: int, width: int, radius: int = 5) -> np.ndarray:
    rows, columns = np.ogrid[:height, :width]
    return ((rows - height // 2) ** 2 + (columns - width // 2) ** 2 < radius**2).astype(np.uint8)


def save(path: Path, array: np.ndarray, mode: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Pillow.fromarray(array)
    (image.convert(mode) if mode else image).save(path)
    return path


def plain_folder(root: Path, names: str | list[str] = "abcd", masks: str | list[str] | None = None) -> Path:
    """images/NAME.png (24 × 32, colour) and masks/NAME.png (0/255)."""
    for seed, name in enumerate(names):
        save(root / "images" / f"{name}.png", picture(seed, 24, 32, 3))
    for name in names if masks is None else masks:
        save(root / "masks" / f"{name}.png", disc(24, 32) * 255)
    return root


def ph2_tree(root: Path) -> Path:
    """As downloaded: 1-bit lesions, but the first in colour; sizes vary."""
    (root / "PH2Dataset").mkdir(parents=True)
    (root / "PH2Dataset" / "PH2_dataset.xlsx").write_bytes(b"PK")
    (root / "PH2Dataset" / "PH2_dataset.txt").write_text("|| Name ||")
    for seed, (name, size) in enumerate({"IMD002": (57, 76), "IMD003": (55, 77), "IMD437": (56, 76)}.items()):
        case = root / "PH2Dataset" / "PH2 Dataset images" / name
        save(case / f"{name}_Dermoscopic_Image" / f"{name}.bmp", picture(seed, *size, 3))
        lesion = disc(*size, radius=9 + seed) * 255
        if name == "IMD002":
            save(case / f"{name}_lesion" / f"{name}_lesion.bmp", np.repeat(lesion[..., None], 3, axis=-1))
        else:
            save(case / f"{name}_lesion" / f"{name}_lesion.bmp", lesion, mode="1")
        save(case / f"{name}_roi" / f"{name}_R1_Label4.bmp", lesion, mode="1")
    return root


def hmeps_tree(root: Path) -> Path:
    """Six frames of three subjects; red is the pupil, green and blue are something else."""
    with_header = [["filename", "roi_x", "roi_y", "roi_w", "eye", "blink", "exp", "sub"]]
    for n in range(6):
        name = f"{n // 2}_Left_{n}"
        save(root / "fullFrames" / f"{name}.jpeg", picture(n, 40, 40))
        colours = np.stack([disc(40, 40, 6), disc(40, 40, 12), disc(40, 40, 3)], axis=-1) * 255
        save(root / "annotation" / "png" / f"{name}.png", colours if n else np.zeros_like(colours))
        with_header.append([f"{name}.jpeg", "0", "0", "40", "1", "0" if n else "1", "nature", str(n // 2)])
    with (root / "annotation" / "annotations.csv").open("w", newline="") as file:
        csv.writer(file).writerows(with_header)
    return root


def glas_tree(root: Path) -> Path:
    lines = ["name,patient ID, grade (GlaS), grade (Sirinukunwattana et al. 2015)"]
    for n, name in enumerate(["train_1", "train_2", "testA_1", "testB_1"]):
        save(root / f"{name}.bmp", picture(n, 24, 32, 3))
        save(root / f"{name}_anno.bmp", disc(24, 32) * (n + 1))
        lines.append(f"{name},{n % 2 + 1}, benign, healthy")
    (root / "Grade.csv").write_bytes("\r".join(lines).encode())
    return root
