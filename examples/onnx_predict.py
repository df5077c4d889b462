"""Predict masks with an ONNX file of `hebbseg export`: needs onnxruntime, numpy and pillow, neither torch nor hebbseg.

python onnx_predict.py model.onnx image.png mask.png       for 2D models with --size HxW and zscore normalization
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

model, source, target = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
about = json.loads(session.get_modelmeta().custom_metadata_map["hebbseg"])
assert about["preprocessing"]["normalize"] == "zscore" and about["window"] is None, about["export"]["steps"]
image = Image.open(source).convert("RGB" if about["network"]["in_channels"] == 3 else "L")
height, width = about["preprocessing"]["size"] or (image.height, image.width)
channels = np.atleast_3d(np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32))
low, high = np.percentile(channels, (0.5, 99.5), axis=(0, 1))
channels = np.clip(channels, 2 * low - high, 2 * high - low)
channels = (channels - channels.mean((0, 1))) / np.maximum(channels.std((0, 1)), 1e-6)
(probabilities,) = session.run(["probabilities"], {"image": channels.transpose(2, 0, 1)[None].astype(np.float32)})
resized = [Image.fromarray(p).resize(image.size, Image.Resampling.BILINEAR) for p in probabilities[0]]
values = np.array([info["value"] for info in about["classes"]], np.uint8)
Image.fromarray(values[np.argmax(np.stack(resized), axis=0)]).save(target)
