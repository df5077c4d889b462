"""Models for programs other than hebbseg: ONNX, TorchScript and bioimage.io packages."""
